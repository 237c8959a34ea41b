//! Which servers are trusted, and which stay refused.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SerialNumber,
};

use super::*;
use crate::tls::test_certificates::{Authority, Issued, params, self_signed};

const NAME: &str = "c.example";

/// Verifies a server with this chain now, by these authorities.
fn verify(authorities: &[&[u8]], chain: &[&[u8]], name: &str) -> Result<(), Error> {
    let authorities: Vec<Vec<u8>> = authorities.iter().map(|der| der.to_vec()).collect();
    let verifier = ServerVerifier::new(&authorities, None);
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| CertificateDer::from(*der)).collect();
    let name = ServerName::try_from(name).unwrap();
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now()).map(drop)
}

fn reason(result: Result<(), Error>) -> CertificateError {
    match result.unwrap_err() {
        Error::InvalidCertificate(reason) => reason,
        other => panic!("{other}"),
    }
}

fn leaf(change: fn(&mut CertificateParams)) -> Issued {
    let mut params = params("server", &[NAME, "127.0.0.1"], 3600);
    change(&mut params);
    self_signed(params)
}

fn as_authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

#[test]
fn a_server_is_trusted_by_its_authority() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let server = authority.server(NAME);
    verify(&[&authority.der()], &[&server.der], NAME).unwrap();
    verify(&[&other.der(), &authority.der()], &[&server.der], NAME).unwrap();
    // An authority that cannot be read does not prevent the others, as in Go.
    verify(&[b"damaged", &authority.der()], &[&server.der], NAME).unwrap();
    assert_eq!(reason(verify(&[&other.der()], &[&server.der], NAME)), CertificateError::UnknownIssuer);
    assert_eq!(reason(verify(&[], &[&server.der], NAME)), CertificateError::UnknownIssuer);
}

#[test]
fn a_server_is_trusted_by_its_own_certificate() {
    let issued = Authority::new("unknown").server(NAME);
    let plain = leaf(|_| ());
    let authority = leaf(as_authority);
    let for_servers = leaf(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    for server in [&issued, &plain, &authority, &for_servers] {
        verify(&[&server.der], &[&server.der], NAME).unwrap();
    }
    verify(&[&plain.der], &[&plain.der], "127.0.0.1").unwrap();
}

#[test]
fn a_server_with_its_own_certificate_is_refused_under_another_name() {
    for server in [leaf(|_| ()), leaf(as_authority)] {
        let refused = reason(verify(&[&server.der], &[&server.der], "other.example"));
        assert!(matches!(refused, CertificateError::NotValidForNameContext { .. }), "{refused:?}");
        let refused = reason(verify(&[&server.der], &[&server.der], "127.0.0.2"));
        assert!(matches!(refused, CertificateError::NotValidForNameContext { .. }), "{refused:?}");
    }
}

#[test]
fn an_expired_or_future_certificate_is_refused_even_as_its_own_authority() {
    let expired =
        leaf(|params| params.not_after = time::OffsetDateTime::now_utc() - time::Duration::seconds(5));
    assert_eq!(reason(verify(&[&expired.der], &[&expired.der], NAME)), CertificateError::Expired);
    let future =
        leaf(|params| params.not_before = time::OffsetDateTime::now_utc() + time::Duration::minutes(5));
    assert_eq!(reason(verify(&[&future.der], &[&future.der], NAME)), CertificateError::NotValidYet);
}

#[test]
fn an_authority_that_has_expired_or_is_not_valid_yet_is_none() {
    let now = time::OffsetDateTime::now_utc();
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = params("ca", &[], 3600);
        as_authority(&mut params);
        change(&mut params);
        Authority::of(params)
    };
    let expired = with(&|params| params.not_after = now - time::Duration::seconds(5));
    let future = with(&|params| params.not_before = now + time::Duration::minutes(5));
    let valid = with(&|_| ());
    for authority in [&expired, &future] {
        let server = authority.server(NAME);
        assert_eq!(reason(verify(&[&authority.der()], &[&server.der], NAME)), CertificateError::Expired);
        verify(&[&authority.der(), &server.der], &[&server.der], NAME).unwrap();
    }
    verify(&[&expired.der(), &valid.der()], &[&valid.server(NAME).der], NAME).unwrap();
}

#[test]
fn another_certificate_is_refused_even_with_the_same_names_and_key() {
    let trusted = leaf(|_| ());
    let other = leaf(|_| ());
    assert_eq!(reason(verify(&[&trusted.der], &[&other.der], NAME)), CertificateError::UnknownIssuer);
    // The trusted certificate as a further one does not help either.
    assert_eq!(
        reason(verify(&[&trusted.der], &[&other.der, &trusted.der], NAME)),
        CertificateError::UnknownIssuer
    );
    // The same key and names, another serial number.
    let key = rcgen::KeyPair::generate().unwrap();
    let [one, two] = [1_u64, 2].map(|serial| {
        let mut params = params("server", &[NAME], 3600);
        params.serial_number = Some(SerialNumber::from(serial));
        params.self_signed(&key).unwrap().der().to_vec()
    });
    verify(&[&one], &[&one], NAME).unwrap();
    assert_eq!(reason(verify(&[&one], &[&two], NAME)), CertificateError::UnknownIssuer);
}

#[test]
fn a_certificate_that_may_issue_no_others_is_an_authority_for_itself_only() {
    let no_authority = Authority::of(params("leaf", &[NAME], 3600));
    let mut not_for_signing = params("leaf", &[NAME], 3600);
    as_authority(&mut not_for_signing);
    not_for_signing.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for issuer in [no_authority, Authority::of(not_for_signing)] {
        verify(&[&issuer.der()], &[&issuer.der()], NAME).unwrap();
        let issued = issuer.server(NAME);
        assert_eq!(reason(verify(&[&issuer.der()], &[&issued.der], NAME)), CertificateError::UnknownIssuer);
    }
    // One that may is.
    let mut both = params("both", &[NAME], 3600);
    as_authority(&mut both);
    let both = Authority::of(both);
    verify(&[&both.der()], &[&both.der()], NAME).unwrap();
    verify(&[&both.der()], &[&both.server(NAME).der], NAME).unwrap();
}

#[test]
fn a_client_certificate_does_not_identify_a_server() {
    let client = leaf(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    assert_eq!(reason(verify(&[&client.der], &[&client.der], NAME)), CertificateError::InvalidPurpose);
}

#[test]
fn authorities_of_a_file_are_read_again() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = new.server(NAME);
    let file = tempfile::NamedTempFile::new().unwrap();
    let verifier = ServerVerifier::new(&[old.der()], Some(file.path().to_owned()));
    let verify = || {
        let (der, name) = (CertificateDer::from(server.der.clone()), ServerName::try_from(NAME).unwrap());
        verifier.verify_server_cert(&der, &[], &name, &[], UnixTime::now()).is_ok()
    };
    let age = || verifier.authorities.write().unwrap().1 -= RELOAD_INTERVAL;
    assert!(!verify());
    age();
    assert!(!verify(), "the file is empty: the old ones are kept");
    std::fs::write(file.path(), new.0.pem()).unwrap();
    assert!(!verify(), "it was read a moment ago");
    age();
    assert!(verify());
}

/// A certificate that openssl makes, because the library of these tests has no such key.
fn by_openssl(key: &[&str], authority: bool) -> Option<Issued> {
    let folder = tempfile::tempdir().unwrap();
    let (pem, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let run = |arguments: &[&str]| {
        std::process::Command::new("openssl")
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())
    };
    let basic = if authority { "basicConstraints=critical,CA:TRUE" } else { "basicConstraints=CA:FALSE" };
    let (pem, certificate) = (pem.to_str()?, certificate.to_str()?);
    let request =
        ["req", "-x509", "-nodes", "-keyout", pem, "-out", certificate, "-days", "2", "-subj", "/CN=odd"];
    let extensions = ["-addext", "subjectAltName=DNS:c.example", "-addext", basic];
    run(&[&request[..], &extensions, &["-newkey"], key].concat())?;
    let certificate = std::fs::read_to_string(certificate).unwrap();
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec();
    Some(Issued { certificate, key: std::fs::read_to_string(pem).unwrap(), der })
}

#[test]
fn what_the_library_does_not_support_is_named() {
    for (key, algorithm) in [
        (&["ec", "-pkeyopt", "ec_paramgen_curve:P-521"][..], "an ECDSA key on the curve P-521"),
        (&["rsa:1024"], "an RSA key of 1024 bits"),
    ] {
        let Some(server) = by_openssl(key, false) else {
            eprintln!("SKIPPED: no openssl");
            return;
        };
        let unrelated = Authority::new("unrelated");
        for authorities in [&server.der, &unrelated.der()] {
            let error = verify(&[authorities], &[&server.der], NAME).unwrap_err();
            let error = std::io::Error::other(error);
            let found = crate::unsupported_certificate(&error).expect("it is found among the causes");
            assert_eq!(
                found.to_string(),
                format!(
                    "the TLS library of this program does not support {algorithm}, which the certificate of the server \
                     \"CN=odd\" has"
                )
            );
            assert!(found.remedy().contains("P-256"), "{}", found.remedy());
        }
        let error =
            crate::tls::identity::Identity::from_pem(server.certificate.as_bytes(), server.key.as_bytes());
        assert_eq!(
            error.unwrap_err().to_string(),
            format!(
                "the TLS library of this program does not support {algorithm}, which the client certificate \"CN=odd\" has"
            )
        );
    }
}

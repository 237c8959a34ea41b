//! Client certificates.

use super::*;
use crate::tls::test_certificates::Authority;

#[test]
fn a_certificate_of_version_1_is_accepted() {
    let authority = Authority::new("ca");
    let client = authority.version_1(&authority.client("me", 3600));
    let identity = Identity::from_pem(client.certificate.as_bytes(), client.key.as_bytes()).unwrap();
    assert!(identity.has_certs());
    assert!(identity.resolve(&[], &[]).is_some());
    assert!(identity.expires().unwrap() > Timestamp::now());
}

#[test]
fn a_certificate_is_sent_to_servers_that_accept_its_issuer() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let client = authority.client("me", 3600);
    let identity = Identity::from_pem(client.certificate.as_bytes(), client.key.as_bytes()).unwrap();
    let subject = |authority: &Authority| {
        X509Certificate::from_der(&authority.der()).unwrap().1.subject().as_raw().to_vec()
    };
    let (own, other) = (subject(&authority), subject(&other));
    assert!(identity.resolve(&[], &[]).is_some());
    assert!(identity.resolve(&[&other, &own], &[]).is_some());
    assert!(identity.resolve(&[&other], &[]).is_none());
}

#[test]
fn what_is_no_pair_is_refused_with_the_reason() {
    let authority = Authority::new("ca");
    let (one, two) = (authority.client("one", 60), authority.client("two", 60));
    let error = |certificate: &str, key: &str| {
        Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err()
    };
    assert!(matches!(error(&one.certificate, &two.key), IdentityError::Mismatch));
    let old = authority.version_1(&one);
    assert!(matches!(error(&old.certificate, &two.key), IdentityError::Mismatch));
    assert!(matches!(error("", &one.key), IdentityError::InvalidCertificate));
    assert!(matches!(error(&one.key, &one.key), IdentityError::InvalidCertificate));
    assert!(matches!(error(&one.certificate, &one.certificate), IdentityError::InvalidKey));
    let encrypted = one.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert!(matches!(error(&one.certificate, &encrypted), IdentityError::EncryptedKey));
}

#[test]
fn the_user_of_a_kubeconfig_has_both_or_neither() {
    let issued = Authority::new("ca").client("me", 60);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path.to_str().unwrap().to_owned())
    };
    let (certificate, key) = (file("certificate", &issued.certificate), file("key", &issued.key));
    let with = |change: &dyn Fn(&mut AuthInfo)| {
        let mut user = AuthInfo {
            client_certificate: certificate.clone(),
            client_key: key.clone(),
            ..AuthInfo::default()
        };
        change(&mut user);
        Identity::of_user(&user)
    };
    assert!(with(&|_| ()).unwrap().is_some());
    assert!(
        with(&|user| user.client_key_data = Some(STANDARD.encode(&issued.key).into())).unwrap().is_some()
    );
    assert!(with(&|user| user.client_certificate_data = Some(String::new())).unwrap().is_some());
    assert!(with(&|user| (user.client_certificate, user.client_key) = (None, None)).unwrap().is_none());
    assert!(matches!(with(&|user| user.client_key = None), Err(IdentityError::Missing("client-key"))));
    assert!(matches!(
        with(&|user| user.client_certificate = Some(String::new())),
        Err(IdentityError::Missing("client-certificate"))
    ));
    let missing = with(&|user| user.client_key = Some("/no/such/key".to_owned())).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read the client-key /no/such/key: "), "{missing}");
    let broken = with(&|user| user.client_certificate_data = Some("%".to_owned())).unwrap_err();
    assert_eq!(broken.to_string(), "the client-certificate-data is not base64");
}

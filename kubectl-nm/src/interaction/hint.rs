//! What to do about an error.
//!
//! Commands stand in backticks; the flags that lead to the cluster are put into them where a hint is shown.

use kube::core::Status;

use crate::client::client_error::SILENT;
use crate::client::webhook_probe;
use crate::error::Error;

/// What to do about a server that has not answered yet, while it is waited for.
pub(crate) const SLOW: &str = "check the address of the server, the network and any proxy; `kubectl config view --minify` \
                               shows what is used; --request-timeout says how long to wait";

impl Error {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Connection(error) => error.hint(),
            Self::Link(error) => error.hint(),
            Self::Setup(error) => return error.hint(),
            Self::Server { asked, status } => return of_server(asked, status),
            Self::NotInstalled { .. } => {
                String::from("`kubectl nm install` installs it; --context chooses another cluster")
            }
            Self::NotServed { .. } => String::from(
                "is it the right cluster? `kubectl api-resources` lists what it serves, --context chooses another",
            ),
            Self::NoApiServer { .. } => String::from(
                "is that the address of the API server, and does a proxy stand before it? \
                 `kubectl config view --minify` shows what is used",
            ),
            Self::Refused { .. } | Self::NoAnswer { .. } => String::from(
                "is the cluster up, and is it the right one? `kubectl config get-contexts` lists them, --context chooses",
            ),
            Self::Unreachable { cause, .. } if cause.contains("certificate") => String::from(
                "the server's certificate is not trusted: check certificate-authority in the kubeconfig, or pass --certificate-authority",
            ),
            Self::Unreachable { cause, .. } => {
                let patience =
                    if cause == SILENT { "; --request-timeout has one that is slow waited for" } else { "" };
                format!(
                    "check the address of the server, the network and any proxy; `kubectl config view --minify` shows \
                     what is used{patience}"
                )
            }
            Self::UnknownNodes { .. } | Self::NothingSelected(_) => {
                String::from("`kubectl get nodes` lists the nodes of this cluster; --context chooses another")
            }
            Self::Selector { .. } => String::from(
                "pool=blue, pool!=blue, pool in (blue,red), spare and !spare choose nodes, commas join them",
            ),
            Self::NodeFile { .. } => String::from(
                "it has the name of a node on each line, and comments after #; - is standard input",
            ),
            Self::Ending(node) => {
                format!("`kubectl nm stop {node} --wait` returns when it is done; start the maintenance then")
            }
            Self::NameTaken { name, .. } => format!(
                "create one under another name, with spec.nodeName {name}, by `kubectl create -f`, or delete that one"
            ),
            Self::Differs { remedy, .. } => format!("`{remedy}` changes it"),
            Self::NotInMaintenance(nodes) => format!(
                "`kubectl nm status` lists the maintenances, `kubectl nm start {}` begins one",
                nodes.join(" ")
            ),
            Self::Screen(_) => String::from("`kubectl nm watch --output lines` does without the screen"),
            Self::Unwritable { .. } => String::from(
                "is there such a folder, with room left, and may you write there? Else choose another",
            ),
            Self::Unplannable(_) => {
                String::from("correct the selector, which is spec.drain.podSelector of a maintenance")
            }
            Self::Template { .. } => {
                String::from("-o json shows the fields that there are, for the template to ask for")
            }
            // The first says -y itself, the second is a person's own decision. The third would be a mistake of ours, the
            // others are the system's, and nothing that anybody could do is known.
            Self::Unconfirmed(_)
            | Self::Declined
            | Self::Unshowable(_)
            | Self::Runtime(_)
            | Self::Closed(_) => return None,
        })
    }
}

/// What to do about a refusal of the API server.
fn of_server(asked: &str, status: &Status) -> Option<String> {
    if let Some((name, is_ours)) = webhook_probe::that_failed(&status.message) {
        return Some(if is_ours {
            format!("the webhook {name} of nm-reconciler does not answer: `kubectl nm doctor` tells why")
        } else {
            format!(
                "the webhook {name} does not answer; whose it is says \
                 `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o wide`"
            )
        });
    }
    Some(match status.code {
        // No right of the user's would change what a webhook thinks, and its own words say what that is.
        _ if status.message.contains("admission webhook") => return None,
        403 => {
            format!("you need the right to {asked}; `kubectl auth can-i {asked}` tells whether you have it")
        }
        401 => String::from(
            "the credentials are missing, wrong or have expired; log in again, or choose others with --context",
        ),
        429 => String::from("the API server is busy: try again in a while"),
        500.. => String::from(
            "it is the API server that has trouble: try again, and see `kubectl get --raw '/readyz?verbose'`",
        ),
        // What is wrong with a request only its own words can tell.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::error::setup_error::SetupError;

    fn refused(code: u16, message: &str) -> Error {
        let status = Status::failure(message, "").with_code(code);
        Error::Server { asked: "list nodes".into(), status: Box::new(status) }
    }

    #[test]
    fn every_error_that_something_can_be_done_about_says_what() {
        let server = || String::from("https://c");
        let unreachable = |cause: &str| Error::Unreachable { server: server(), cause: cause.into() };
        for (error, hinted) in [
            (refused(403, "no"), "`kubectl auth can-i list nodes`"),
            (refused(401, "no"), "log in again"),
            (refused(429, "busy"), "try again"),
            (refused(500, "etcd"), "readyz"),
            (Error::NotInstalled { server: server() }, "`kubectl nm install`"),
            (Error::NotServed { server: server(), asked: "list x".into() }, "api-resources"),
            (Error::NoApiServer { server: server(), code: 502, said: "x".into() }, "the address"),
            (Error::Refused { server: server() }, "get-contexts"),
            (Error::NoAnswer { server: server(), after: Duration::ZERO }, "get-contexts"),
            (unreachable("invalid peer certificate"), "certificate-authority"),
            (unreachable("no route"), "is used"),
            (unreachable(SILENT), "--request-timeout"),
            (Error::UnknownNodes { names: vec!["a".into()], meant: vec![] }, "`kubectl get nodes`"),
            (Error::NothingSelected("a".into()), "`kubectl get nodes`"),
            (Error::Selector { selector: "a b".into(), why: "x".into() }, "pool=blue"),
            (Error::NodeFile { file: "f".into(), why: "x".into() }, "each line"),
            (Error::Ending("n".into()), "`kubectl nm stop n --wait`"),
            (Error::NameTaken { name: "n".into(), other: "o".into() }, "`kubectl create -f`"),
            (Error::NotInMaintenance(vec!["n".into()]), "`kubectl nm start n`"),
            (Error::Screen(io::Error::other("x")), "--output lines"),
            (Error::Unwritable { path: "p".into(), source: io::Error::other("x") }, "folder"),
            (Error::Unplannable("x".into()), "podSelector"),
            (Error::Template { template: "t".into(), why: "x".into() }, "-o json"),
            (Error::Setup(SetupError::LeaseNamespace("l".into())), "-n"),
        ] {
            assert!(error.hint().is_some_and(|hint| hint.contains(hinted)), "{error}: {:?}", error.hint());
        }
    }

    #[test]
    fn a_webhook_that_does_not_answer_is_named_and_not_the_api_server() {
        let failed = |name: &str| {
            let words = format!(
                "Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: x"
            );
            refused(500, &words).hint().unwrap()
        };
        let ours = failed("validate.nodemaintenance.medik8s.io");
        assert!(ours.contains("validate.nodemaintenance.medik8s.io"), "{ours}");
        assert!(ours.contains("`kubectl nm doctor`") && !ours.contains("readyz"), "{ours}");
        let theirs = failed("policy.example.com");
        assert!(theirs.contains("policy.example.com") && !theirs.contains("doctor"), "{theirs}");
    }

    #[test]
    fn where_the_words_say_it_all_no_hint_does() {
        for error in [
            refused(403, "admission webhook \"nm\" denied the request: invalid nodeName"),
            refused(422, "spec.nodeName: immutable"),
            Error::Unconfirmed(2),
            Error::Declined,
        ] {
            assert_eq!(error.hint(), None, "{error}");
        }
    }
}

//! Hints: what to do about an error.
//!
//! Commands are in backticks; connection flags are inserted where a hint is printed.

use jiff::Timestamp;
use kube::core::Status;
use nm_shared::cluster::admission_webhook;
use nm_shared::cluster::refusal::Refusal;

use crate::error::{Change, Error, UnreachableCause, roll_hint, silent_webhook};
use crate::terminal::command_context::shell_quoted;

/// What to do if the value of a flag was taken for a node.
const VALUE: &str = "the value of such a flag needs =, as in --delete-emptydir-data=false";

/// Whether the name of a node is more likely the value of a flag.
fn is_value(name: &String) -> bool {
    name == "true" || name == "false"
}

impl Error {
    /// What to do about it; `None` if the message is complete or no remedy is known. Commands are in backticks, without
    /// connection flags.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Connection(error) => error.hint(),
            Self::Above(failure) => return failure.hint(),
            Self::Server { asked, status } => return of_server(asked, status),
            Self::NotInstalled { .. } => String::from(
                "`kubectl nm install --image IMAGE` installs it; --context chooses another cluster",
            ),
            Self::NotServed { .. } => String::from(
                "is this the right cluster? `kubectl api-resources` lists what it serves; --context chooses another",
            ),
            Self::NoApiServer { .. } => String::from(
                "is this the address of an API server, and is there a proxy in between? `kubectl config view --minify` shows \
                 the settings in use",
            ),
            Self::Refused { .. } | Self::NoAnswer { .. } => String::from(
                "is the cluster running, and is it the right one? `kubectl config get-contexts` lists the clusters; --context \
                 chooses one",
            ),
            Self::Unreachable { cause: UnreachableCause::Certificate(_), .. } => String::from(
                "the server's certificate is not trusted: check certificate-authority in the kubeconfig, or pass --certificate-authority",
            ),
            Self::Unreachable { cause: UnreachableCause::Unsupported(unsupported), .. } => {
                unsupported.remedy()
            }
            Self::Unreachable { cause, .. } => {
                let timeout = match cause {
                    UnreachableCause::NoResponse => "; --request-timeout sets a longer timeout",
                    _ => "",
                };
                format!(
                    "check the address of the server, the network and any proxy; `kubectl config view --minify` shows the \
                     settings in use{timeout}"
                )
            }
            Self::UnknownNodes { names, .. } if names.iter().any(is_value) => VALUE.to_owned(),
            Self::UnknownNodes { .. } | Self::NothingSelected(_) => String::from(
                "`kubectl get nodes` lists the nodes of this cluster; --context chooses another cluster",
            ),
            Self::Selector { .. } => String::from(
                "valid requirements are pool=blue, pool!=blue, pool in (blue,red), spare and !spare, separated by commas",
            ),
            Self::NodeFile { .. } => {
                String::from("the file must have one node name per line; text after # is ignored")
            }
            Self::Ending(node) => {
                format!(
                    "`kubectl nm stop {node} --wait` returns when the node is back; then start the maintenance"
                )
            }
            Self::EndingHeld { node, .. } => {
                format!(
                    "the owner removes the hook when the work is done; `kubectl nm explain {node}` shows how to \
                     continue without the work; then a new maintenance can start"
                )
            }
            Self::InRoll { node, roll, standing } => roll_hint::of_node(node, roll, standing.as_ref()),
            Self::NameTaken { name, .. } => format!(
                "create a NodeMaintenance with another name and spec.nodeName {name} (`kubectl create -f`), or \
                 delete the existing one, which returns its node to service"
            ),
            Self::Differs { remedy, change, effects, .. } => {
                let hint = differs(remedy, *change);
                // Without the command, nothing becomes of it.
                let effects = effects.iter().filter(|_| hint.contains(remedy));
                effects.fold(hint.clone(), |hint, effect| format!("{hint}; {effect}"))
            }
            Self::NotInMaintenance(nodes) => format!(
                "`kubectl nm status` lists the maintenances; `kubectl nm start {}` starts one",
                nodes.join(" ")
            ),
            Self::OlderGroup { node, resource } => format!(
                "`kubectl get {resource}` lists it; delete it to return the node to service, and then plan a maintenance \
                 with `kubectl nm start {node} --suspend`"
            ),
            Self::SuspendPruned | Self::DrainPruned(_) => String::from(
                "`kubectl nm install` updates the CRD; the CRD of the medik8s node-maintenance-operator has no such \
                 field",
            ),
            Self::SuspendIgnored(node) => format!(
                "`kubectl nm stop {node}` ends the drain; only nm-reconciler, which `kubectl nm install` installs, can pause"
            ),
            Self::AlreadyStopping(node) => {
                format!("`kubectl cordon {node}` cordons the node once its maintenance has ended")
            }
            Self::KeepCordonIgnored(node) => format!(
                "`kubectl nm stop {node}` without --keep-cordon ends the maintenance, and `kubectl cordon {node}` cordons the \
                 node again"
            ),
            Self::Screen(_) => String::from("--output lines works without the dashboard"),
            Self::Unwritable { .. } => String::from(
                "check that the folder exists, is writable and has free space, or choose another one",
            ),
            Self::Unplannable(_) => String::from(
                "correct the selector in spec.drain (podSelector or waitForCompletion) of the maintenance",
            ),
            // These messages are complete, or no remedy is known.
            Self::Unconfirmed | Self::Declined | Self::Unshowable(_) | Self::Runtime(_) | Self::Stdout(_) => {
                return None;
            }
        })
    }
}

/// What changes the settings of a maintenance to those that were asked for.
fn differs(remedy: &str, change: Change) -> String {
    match change {
        // Two people who give different reasons may want different things.
        Change::Reason => format!(
            "somebody else may have started it and work on the node: agree with them, or `{remedy}` replaces the reason"
        ),
        Change::Settings => format!("`{remedy}` changes it"),
        Change::FailedDrain(None) => {
            format!("`{remedy}` changes it; the drain then continues, without a time limit")
        }
        Change::FailedDrain(Some(until)) if until > Timestamp::now() => {
            format!(
                "`{remedy}` changes it; the drain then continues until {until}: its time limit counts from the cordon"
            )
        }
        Change::FailedDrain(Some(until)) => format!(
            "the time limit counts from the cordon of the node, and would be over since {until}: choose a longer one, or 0 for none"
        ),
    }
}

fn of_server(asked: &str, status: &Status) -> Option<String> {
    if let Some((name, why)) = silent_webhook(status) {
        return Some(format!(
            "either nm-reconciler does not run, or the API server cannot reach its webhook {name}: `kubectl nm doctor` shows \
             which. The API server reports: {why}"
        ));
    }
    if let Some((name, _)) = admission_webhook::failed_call(&status.message) {
        return Some(format!(
            "the webhook {name} does not respond; \
             `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o wide` shows its owner"
        ));
    }
    match Refusal::from(status) {
        Refusal::AccessDenied(_) => {
            return Some(format!(
                "you need permission to {asked}; check it with `kubectl auth can-i {asked}`"
            ));
        }
        Refusal::Policy(policy) => {
            let name = shell_quoted(&policy.name);
            return Some(format!(
                "`kubectl get validatingadmissionpolicies {name} -o yaml` shows what the policy requires"
            ));
        }
        // Permissions do not change these decisions, and the message explains them.
        Refusal::Webhook { .. }
        | Refusal::Quota { .. }
        | Refusal::QuotaWithoutAmount { .. }
        | Refusal::NamespaceTerminating
        | Refusal::OwnerReference => return None,
        Refusal::Other if status.code == 403 && status.message.contains(" is forbidden: ") => return None,
        _ => {}
    }
    Some(match status.code {
        403 => format!("you may lack the permission to {asked}; check it with `kubectl auth can-i {asked}`"),
        401 => String::from(
            "the credentials are missing, wrong or expired; log in again, or choose others with --context",
        ),
        429 => String::from("the API server is busy: try again later"),
        500.. => String::from(
            "the API server has a problem: try again, and check `kubectl get --raw '/readyz?verbose'`",
        ),
        // The server's message explains an invalid request.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::error::NodeFileProblem;

    fn refused(code: u16, message: &str) -> Error {
        let status = Status::failure(message, "").with_code(code);
        Error::Server { asked: "list nodes".into(), status: Box::new(status) }
    }

    #[test]
    fn errors_that_the_user_can_fix_have_hints() {
        let server = || String::from("https://c");
        let unreachable = |cause| Error::Unreachable { server: server(), cause };
        for (error, hinted) in [
            (refused(403, "no"), "`kubectl auth can-i list nodes`"),
            (
                refused(
                    403,
                    "nodes is forbidden: User \"u\" cannot list resource \"nodes\" in API group \"\"",
                ),
                "you need permission to list nodes",
            ),
            (
                refused(
                    422,
                    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                ),
                "`kubectl get validatingadmissionpolicies p -o yaml`",
            ),
            (refused(401, "no"), "log in again"),
            (refused(429, "busy"), "try again"),
            (refused(500, "etcd"), "readyz"),
            (Error::NotInstalled { server: server() }, "`kubectl nm install --image IMAGE`"),
            (Error::NotServed { server: server(), asked: "list x".into() }, "api-resources"),
            (Error::NoApiServer { server: server(), code: 502, response: "x".into() }, "the address"),
            (Error::Refused { server: server() }, "get-contexts"),
            (Error::NoAnswer { server: server(), after: Duration::ZERO }, "get-contexts"),
            (unreachable(UnreachableCause::Certificate("x".into())), "certificate-authority"),
            (unreachable(UnreachableCause::Other("no route".into())), "settings in use"),
            (unreachable(UnreachableCause::NoResponse), "--request-timeout"),
            (Error::UnknownNodes { names: vec!["a".into()], meant: vec![] }, "`kubectl get nodes`"),
            (
                Error::UnknownNodes { names: vec!["false".into()], meant: vec![] },
                "--delete-emptydir-data=false",
            ),
            (Error::NothingSelected("a".into()), "`kubectl get nodes`"),
            (Error::Selector { selector: "a b".into(), why: "x".into() }, "pool=blue"),
            (Error::NodeFile { file: "f".into(), problem: NodeFileProblem::Empty }, "per line"),
            (Error::Ending("n".into()), "`kubectl nm stop n --wait`"),
            (Error::EndingHeld { node: "n".into(), hold: "hook flush".into() }, "`kubectl nm explain n`"),
            (Error::NameTaken { name: "n".into(), other: "o".into() }, "`kubectl create -f`"),
            (Error::NotInMaintenance(vec!["n".into()]), "`kubectl nm start n`"),
            (Error::OlderGroup { node: "n".into(), resource: "r".into() }, "`kubectl get r`"),
            (Error::SuspendPruned, "`kubectl nm install`"),
            (Error::DrainPruned(vec!["spec.drain.surge".into()]), "`kubectl nm install`"),
            (Error::SuspendIgnored("n".into()), "`kubectl nm stop n`"),
            (Error::KeepCordonIgnored("n".into()), "`kubectl cordon n`"),
            (Error::AlreadyStopping("n".into()), "`kubectl cordon n`"),
            (Error::Screen(io::Error::other("x")), "--output lines"),
            (Error::Unwritable { path: "p".into(), source: io::Error::other("x") }, "folder"),
            (Error::Unplannable("x".into()), "podSelector"),
            (
                Error::InRoll { node: "n".into(), roll: "r".into(), standing: None },
                "`kubectl nm roll resume r`",
            ),
        ] {
            assert!(error.hint().is_some_and(|hint| hint.contains(hinted)), "{error}: {:?}", error.hint());
        }
    }

    #[test]
    fn a_webhook_that_does_not_respond_is_named() {
        let failed = |name: &str| {
            let message = format!(
                "Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: x"
            );
            refused(500, &message).hint().unwrap()
        };
        let ours = failed("validate.nodemaintenance.medik8s.io");
        assert!(ours.contains("validate.nodemaintenance.medik8s.io"), "{ours}");
        assert!(ours.contains("`kubectl nm doctor`") && !ours.contains("readyz"), "{ours}");
        let theirs = failed("policy.example.com");
        assert!(theirs.contains("policy.example.com") && !theirs.contains("doctor"), "{theirs}");
    }

    #[test]
    fn messages_that_say_what_to_do_have_no_hint() {
        for error in [
            refused(403, "admission webhook \"nm\" denied the request: invalid nodeName"),
            refused(
                403,
                "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
            ),
            refused(403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": hostNetwork"),
            refused(422, "spec.nodeName: immutable"),
            Error::Unconfirmed,
            Error::Declined,
        ] {
            assert_eq!(error.hint(), None, "{error}");
        }
    }
}

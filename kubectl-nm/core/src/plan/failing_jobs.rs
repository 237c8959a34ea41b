//! The Jobs that a drain makes fail for good, in words.

use std::collections::BTreeMap;

use nm_shared::PodReference;
use serde_json::{Value, json};

use crate::args::duration::age;
use crate::terminal::text::{Line, Style, counted, first_names};

/// Jobs that fail for good when their pods are evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingJobs {
    pub(super) jobs: Vec<PodReference>,
    /// The seconds after the cordon when their pods are evicted, if they have not ended; none if that is at once.
    pub(super) after: Option<i64>,
}

impl FailingJobs {
    pub(super) fn of(failing: &BTreeMap<Option<i64>, Vec<PodReference>>) -> impl Iterator<Item = Self> {
        failing.iter().map(|(after, jobs)| Self { jobs: jobs.clone(), after: *after })
    }

    pub(super) fn line(&self) -> Line {
        let is_one = self.jobs.len() == 1;
        let verb = if is_one { "fails" } else { "fail" };
        let fail = format!("{} {verb} for good", counted(self.jobs.len(), "Job"));
        let names: Vec<String> = self.jobs.iter().map(ToString::to_string).collect();
        let names = first_names(&names);
        Line::default().with(Style::Bad, fail).and(match self.after {
            None => {
                let them = if is_one { "it" } else { "them" };
                format!(" (backoffLimit): {names}; --wait-for-completion lets {them} finish")
            }
            Some(seconds) => {
                let they_run = if is_one { "it runs" } else { "they run" };
                format!(
                    " (backoffLimit) if {they_run} for {} or longer after the cordon: {names}",
                    age(seconds)
                )
            }
        })
    }

    pub(super) fn document(&self) -> Value {
        let mut document = json!({"harm": "JobsFail", "jobs": self.jobs});
        if let Some(seconds) = self.after {
            document["afterSeconds"] = json!(seconds);
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_may_finish_before_its_pods_are_evicted_fails_only_if_it_does_not() {
        let job = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
        let failing = [(None, vec![job("a"), job("b")]), (Some(90), vec![job("c")])].into();
        let found: Vec<FailingJobs> = FailingJobs::of(&failing).collect();
        let lines: Vec<String> = found.iter().map(|failing| failing.line().to_string()).collect();
        assert_eq!(
            lines,
            [
                "2 Jobs fail for good (backoffLimit): shop/a, shop/b; --wait-for-completion lets them finish",
                "1 Job fails for good (backoffLimit) if it runs for 1m30s or longer after the cordon: shop/c"
            ]
        );
        assert_eq!(found[0].document(), json!({"harm": "JobsFail", "jobs": [job("a"), job("b")]}));
        assert_eq!(found[1].document(), json!({"harm": "JobsFail", "jobs": [job("c")], "afterSeconds": 90}));
    }
}

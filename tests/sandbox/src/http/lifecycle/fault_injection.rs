//! Applies faults to a request.

use std::future::Future;

use crate::faults::{End, Moment, Plan};
use crate::http::response::answer::{self, HandlerResult};

/// Handles a request with its faults: delayed, failed, or without a response.
pub(crate) async fn play(plan: Plan, carry_out: impl Future<Output = HandlerResult>) -> HandlerResult {
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    let answer = match plan.end {
        None => carry_out.await,
        Some((end, moment)) => {
            if moment == Moment::AfterEffect {
                // The client never sees the result.
                drop(carry_out.await);
            }
            match end {
                End::Refused(refusal) => Err(refusal),
                End::Throttled(refusal) => Ok(answer::throttled(&refusal)),
                End::Disconnected => Ok(answer::lost()),
                End::Unanswered => std::future::pending().await,
            }
        }
    };
    if !plan.answer_delay.is_zero() {
        tokio::time::sleep(plan.answer_delay).await;
    }
    answer
}

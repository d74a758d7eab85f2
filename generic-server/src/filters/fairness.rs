//! Priority and fairness as a layer of the chain: answers of requests that are refused, and permits of those that are not.

use http::{HeaderValue, header};

use super::max_in_flight::{Admission, Admit, Permit, too_many_requests};
use crate::flowcontrol::{Asked, Flow, FlowControl, Turn};
use crate::request::Response;

impl Admit for FlowControl {
    fn admit(&self, asked: &Asked<'_>) -> Admission {
        match self.enter(asked) {
            Turn::Free(headers) => Admission::Runs(Permit::classified(headers)),
            Turn::Runs(flow, seat) => Admission::Runs(Permit::seat(seat, flow)),
            Turn::Refused(flow) => Admission::Refused(refusal(flow)),
            Turn::Waits(flow, waits) => Admission::Waits(Box::pin(async move {
                match waits.seat().await {
                    Some(seat) => Ok(Permit::seat(seat, flow)),
                    None => Err(refusal(flow)),
                }
            })),
        }
    }
}

/// 429, in upstream's words.
fn refusal(flow: Flow) -> Box<Response> {
    let mut response = too_many_requests();
    let headers = response.headers_mut();
    let seconds = flow.retry_after().as_secs();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    flow.headers.insert(headers);
    response
}

//! Gets and reviews of a user with one role: beside ten bindings of others, beside thousands, and when a user has many roles of its own.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Request, Rows};
use crate::client::{Error, Target};
use crate::collect;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Bindings of the first rows.
const FEW: usize = 10;
/// The account that holds a binding of each role.
const HOLDER: &str = "holder";

pub(super) async fn run(of: &Rows<'_>, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
    let (roles, bindings) = (of.access.roles.max(1), of.access.bindings.max(FEW));
    let reader = of.reader("reader").await?;
    give(of, 0, FEW, roles).await?;
    both(of, &format!("{FEW} bindings"), &reader, print).await?;
    give(of, FEW, bindings, roles).await?;
    // It comes after the bindings in every server's order of events, so that they are known once it is.
    of.reader("last").await?;
    both(of, &format!("{bindings} bindings"), &reader, print).await?;
    let holder = of.reader(HOLDER).await?;
    let path = of.rbac("rolebindings");
    let own = (0..roles).map(|at| of.binding(&format!("own-{at:06}"), &role(at), HOLDER));
    post(of, path, own.collect()).await?;
    of.reader("last-of-all").await?;
    both(of, &format!("{roles} roles of its own"), &holder, print).await
}

/// A get and a review.
async fn both(
    of: &Rows<'_>,
    beside: &str,
    user: &Target,
    print: &mut (dyn FnMut(Value) + Send),
) -> Result<(), Error> {
    let path = of.small();
    let get: Arc<Request> = Arc::new(move |_| ("GET", path.clone(), Bytes::new()));
    print(of.row(&format!("get, {beside}"), user, &get).await?);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"namespace": of.namespace, "verb": "delete", "resource": "secrets", "name": "none"}}});
    let review: Bytes = review.to_string().into();
    let ask: Arc<Request> = Arc::new(move |_| ("POST", REVIEWS.into(), review.clone()));
    let row = format!("SelfSubjectAccessReview that is refused, {beside}");
    print(of.row(&row, user, &ask).await?);
    Ok(())
}

fn role(at: usize) -> String {
    format!("role-{at:06}")
}

/// Makes roles, and the bindings with these numbers, each to another account.
async fn give(of: &Rows<'_>, from: usize, to: usize, roles: usize) -> Result<(), Error> {
    let wanted = (from.min(roles)..to.min(roles)).map(|at| Rows::role(&role(at), &["pods", "services"]));
    post(of, of.rbac("roles"), wanted.collect()).await?;
    let bindings = (from..to).map(|at| {
        let account = format!("other-{at:06}");
        of.binding(&format!("binding-{at:06}"), &role(at % roles), &account)
    });
    post(of, of.rbac("rolebindings"), bindings.collect()).await
}

async fn post(of: &Rows<'_>, collection: String, objects: Vec<Value>) -> Result<(), Error> {
    let count = objects.len();
    let objects = Arc::new(objects);
    collect::all(of.target, 32, count, move |index| {
        (
            "POST",
            collection.clone(),
            objects.get(index).cloned().unwrap_or_default(),
        )
    })
    .await
}

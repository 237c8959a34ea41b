//! Lists that may be long.

use std::fmt::Debug;

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use crate::client::cluster::Cluster;
use crate::error::Error;

/// How many objects a response has at most.
pub(crate) const PAGE_SIZE: u32 = 500;

/// Lists all objects page by page, and collects them with `add`. If the continue token expires, all objects are listed again
/// in one page.
pub(crate) async fn list_pages<K, Kept: Default>(
    api: &Api<K>,
    cluster: &Cluster,
    what: &str,
    selected: ListParams,
    add: impl FnMut(&mut Kept, K),
) -> Result<Kept, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    until(api, cluster, what, selected, add, |_| false).await
}

/// The same until what was collected is enough.
pub(crate) async fn until<K, Kept: Default>(
    api: &Api<K>,
    cluster: &Cluster,
    what: &str,
    selected: ListParams,
    mut add: impl FnMut(&mut Kept, K),
    is_enough: impl Fn(&Kept) -> bool,
) -> Result<Kept, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    const EXPIRED: u16 = 410;
    let size = selected.limit.unwrap_or(PAGE_SIZE);
    let whole = ListParams { limit: None, ..selected };
    let (mut kept, mut page) = (Kept::default(), whole.clone().limit(size));
    loop {
        let list = match cluster.request(what, async || api.list(&page).await).await {
            Err(error)
                if page.continue_token.is_some()
                    && error.status().is_some_and(|status| status.code == EXPIRED) =>
            {
                (kept, page) = (Kept::default(), whole.clone());
                continue;
            }
            list => list?,
        };
        list.items.into_iter().for_each(|item| add(&mut kept, item));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if !is_enough(&kept) => page = page.continue_token(&token),
            _ => return Ok(kept),
        }
    }
}

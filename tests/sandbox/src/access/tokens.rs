//! Bearer tokens: of users, without an expiry, and of service accounts, with one.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::access::user::User;
use crate::cluster::catalog::resource::SERVICE_ACCOUNTS;
use crate::cluster::store::{Key, Store};

/// All valid tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    users: HashMap<String, User>,
    accounts: HashMap<String, AccountToken>,
}

#[derive(Debug)]
struct AccountToken {
    account: Key,
    /// The account's uid: a new account with the same name is a different one.
    uid: String,
    id: Uuid,
    expires: Timestamp,
}

impl Tokens {
    /// A token for a user.
    pub(crate) fn for_user(&mut self, user: User) -> String {
        let token = new_token();
        self.users.insert(token.clone(), user);
        token
    }

    /// A token for a service account, and when it expires.
    pub(crate) fn for_account(
        &mut self,
        account: Key,
        uid: &str,
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> (String, Timestamp) {
        self.accounts.retain(|_, token| token.expires > now);
        let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
        let token = new_token();
        let known = AccountToken { account, uid: uid.to_owned(), id: Uuid::new_v4(), expires };
        self.accounts.insert(token.clone(), known);
        (token, expires)
    }

    /// The user of a token; none if it is unknown or expired, or if its account is gone.
    pub(crate) fn owner(&self, token: &str, store: &Store, now: Timestamp) -> Option<User> {
        if let Some(user) = self.users.get(token) {
            return Some(user.clone());
        }
        let known = self.accounts.get(token).filter(|known| known.expires > now)?;
        let account = store.read(|state| state.get(&SERVICE_ACCOUNTS, &known.account))?;
        if account["metadata"]["uid"] != known.uid {
            return None;
        }
        let user = User::service_account(&known.account.namespace, &known.account.name, &known.uid);
        let id = vec![format!("JTI={}", known.id)];
        let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), id)]);
        Some(User { extra, ..user })
    }
}

/// Random text. A real cluster's tokens carry claims; these do not.
fn new_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

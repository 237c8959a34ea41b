//! The volumes that are attached to nodes, and the claims of these volumes, as far as they are known.

use std::collections::HashSet;
use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use kube::ResourceExt;
use nm_shared::ClaimReference;
use nm_shared::cluster::volume_attachment::{ClaimsOfVolumes, NodeVolumes, VolumeAttachment};
use nm_shared::drain::eviction_outcome::AccessDenied;

use crate::cache::index::Index;
use crate::cache::watched::{Concerns, WatchUpdate};

/// A volume to read, and the node that it is attached to.
pub(crate) type WantedVolume = (String, Box<str>);

/// What is known while the watch on attachments runs.
pub(crate) struct KnownVolumes {
    /// Whether all attachments are known.
    is_complete: bool,
    /// By name and node. One that is deleted and created again may be of another node.
    attachments: Index<String, Arc<VolumeAttachment>>,
    /// The denial, if the API server denies listing the attachments.
    forbidden: Option<AccessDenied>,
    claims: ClaimsOfVolumes,
    /// The volumes whose claims are being read.
    requested: HashSet<Box<str>>,
    /// The denial, if the API server denies reading volumes.
    claims_forbidden: Option<AccessDenied>,
    /// Where to request the claims of volumes.
    wanted: UnboundedSender<WantedVolume>,
}

impl KnownVolumes {
    /// Nothing is known yet. The volumes whose claims are needed are sent to `wanted`.
    pub(crate) fn new(wanted: UnboundedSender<WantedVolume>) -> Self {
        Self {
            is_complete: false,
            attachments: Index::default(),
            forbidden: None,
            claims: ClaimsOfVolumes::new(),
            requested: HashSet::new(),
            claims_forbidden: None,
            wanted,
        }
    }

    /// Takes in what the watch delivers.
    pub(crate) fn apply(&mut self, update: WatchUpdate<VolumeAttachment>) -> Concerns {
        match update {
            WatchUpdate::Applied(attachment) => {
                let node = attachment.node.to_string();
                self.insert(attachment);
                Concerns::Node(node)
            }
            WatchUpdate::Deleted(attachment) => {
                self.attachments.remove(&attachment.name_any());
                if let Some(volume) = &attachment.volume {
                    self.claims.remove(volume);
                }
                Concerns::Node(attachment.node.into())
            }
            WatchUpdate::Listed(all) => {
                (self.is_complete, self.forbidden) = (true, None);
                self.attachments = Index::default();
                for attachment in all {
                    self.insert(attachment);
                }
                self.claims.clear();
                Concerns::All
            }
            WatchUpdate::Interrupted => {
                self.is_complete = false;
                Concerns::Nothing
            }
            WatchUpdate::Forbidden(denied) => {
                (self.is_complete, self.forbidden) = (false, Some(denied));
                Concerns::All
            }
        }
    }

    fn insert(&mut self, attachment: VolumeAttachment) {
        let (name, node) = (attachment.name_any(), attachment.node.clone());
        self.attachments.insert(name, &node, Arc::new(attachment));
    }

    /// The claim of a volume was read; none if the volume no longer exists.
    pub(crate) fn claim_read(&mut self, volume: Box<str>, claim: Option<ClaimReference>) {
        self.requested.remove(&volume);
        self.claims.insert(volume, claim);
    }

    /// Whether reading volumes is denied from now on. Returns whether that is new.
    pub(crate) fn claims_denied(&mut self, denied: Option<AccessDenied>) -> bool {
        let is_denied = denied.is_some();
        std::mem::replace(&mut self.claims_forbidden, denied).is_some() != is_denied
    }

    /// The denial, if access is missing.
    pub(crate) fn denied(&self) -> Option<AccessDenied> {
        self.forbidden.clone().or_else(|| self.claims_forbidden.clone())
    }

    /// The volumes attached to `node`, as far as they are known, and the denial if access is missing. Their claims are read
    /// from the first call on.
    pub(crate) fn on_node(&mut self, node: &str) -> (NodeVolumes, Option<AccessDenied>) {
        let attachments: Vec<_> = self.attachments.of(node).cloned().collect();
        let mut claims = ClaimsOfVolumes::new();
        for volume in attachments.iter().filter_map(|attachment| attachment.volume.as_ref()) {
            if let Some(claim) = self.claims.get(volume) {
                claims.insert(volume.clone(), claim.clone());
            } else if self.requested.insert(volume.clone()) {
                // The receiver is gone only when the term ends.
                let _ = self.wanted.unbounded_send((node.to_owned(), volume.clone()));
            }
        }
        (NodeVolumes { attachments, is_complete: self.is_complete, claims }, self.denied())
    }
}

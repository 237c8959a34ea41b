//! End-to-end tests: the built programs on a cluster.
//!
//! Each file is about one subject, and the name of each test states a promise. `Case N` in a comment refers to the cases in
//! CONTRIBUTING.md that every implementation of `NodeMaintenance` must pass.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod dashboard {
    mod acting;
    mod all_nodes;
    mod configuration;
    mod environment;
    mod panes;
    mod recording;
    mod replacements;
    mod roll;
    mod session;
    mod setup;
    mod start_options;
}
mod demo;
mod drain {
    mod blocked_pods;
    mod blocked_pods_simulated;
    mod budget_turn;
    mod budgets;
    mod completion;
    mod concurrent_nodes;
    mod daemon_sets;
    mod delete_after;
    mod deleted_midway;
    mod failed_evictions;
    mod grace_period;
    mod neighbours;
    mod order;
    mod replacements;
    mod request_count;
    mod returning;
    mod spec_changes;
    mod surge;
    mod surge_obstacles;
    mod throttling;
    mod timeouts;
    mod volume_detach;
}
mod ha {
    mod evictions_in_flight;
    mod failover;
    mod without_election;
}
mod install {
    mod image;
    mod installation;
    mod krew;
    mod krew_manifest;
    mod refused;
}
mod kubevirt {
    mod migration;
    mod not_migratable;
    mod stop;
}
mod known_defects {
    mod node_marks;
    mod pods;
}
mod layout;
mod lifecycle;
mod maintenance {
    mod api_object;
    mod hostile_names;
    mod older_groups;
    mod selector_limits;
    mod several_per_node;
    mod status_writes;
    mod suspended;
}
mod manifests {
    pub(crate) mod alerts;
    mod applied;
    mod deployment;
    mod field_managers;
    mod generated;
    mod olm;
    mod typed;
    mod wiring;
}
mod node {
    mod conditions;
    mod deleted_node;
    mod drift;
    mod gate;
    mod lease;
    mod queue;
    mod undo_record;
}
mod plugin {
    mod commands;
    mod complete_output;
    mod completion;
    mod credential_programs;
    mod doctor;
    mod explain;
    mod first_cause;
    mod flags;
    mod gather;
    mod job_control;
    mod kubeconfigs;
    mod output_formats;
    mod pause;
    mod plan;
    mod start_cost;
    mod start_stop;
    mod unreachable_server;
    mod watch_output;
}
mod reconciler {
    mod admission_policies;
    mod connections;
    mod fault_proxy;
    mod kubeconfig;
    mod observability;
    mod optional_permissions;
    mod permissions;
    mod process;
    mod readiness;
    mod refused_writes;
    mod stolen_token;
}
mod repository {
    mod book;
    mod cases;
    mod command_reference;
    mod documentation;
    mod evidence;
    mod gitops;
    mod links;
    mod promises;
    mod reference;
    mod workflows;
}
mod roll {
    mod absence;
    mod around;
    mod begin;
    mod concurrent;
    mod control;
    mod halt;
    mod halted_alert;
    mod health;
    mod hook_examples;
    mod in_cluster;
    mod in_cluster_crashes;
    mod in_cluster_halt;
    mod job;
    mod last_node;
    mod reboot;
    mod resume;
    mod retry;
    mod running_roll;
    mod schedule;
    mod unwritable;
    mod window;
}
mod takeover {
    mod medik8s;
    mod medik8s_sample;
    mod own_steps;
    mod recorded_states;
}
mod webhook {
    mod admission_policy;
    mod certificates;
    mod quorum;
    mod untrusted_clients;
    mod validation;
}

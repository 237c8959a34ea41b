#![doc = include_str!("../README.md")]

mod access;
pub mod cluster;
pub mod controllers;
pub mod faults;
pub mod http;
pub mod kubevirt;
mod model;
pub mod request_log;
pub mod sandbox;
pub mod server;
pub mod workload;

pub use cluster::catalog::resource;
pub use cluster::{admission, registry, store};
pub use model::{clock, duration, status_error};

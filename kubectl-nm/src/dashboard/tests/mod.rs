//! The dashboard as a whole: what is on the screen, and what keys do, without a terminal or a cluster.

mod cluster;
mod keys;
mod mouse;
mod painted;
mod scenes;
mod screens;
mod screenshots;
mod start_and_stop;

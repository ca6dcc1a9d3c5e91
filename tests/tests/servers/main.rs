//! The program on real servers: Pulsar, Fuseki, PostgreSQL and S3, on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod audit;
mod backup;
mod control;
mod coordination;
mod example;
mod identity;
mod library;
mod migrate;
mod patterns;
mod services;
mod small_model;
mod storm;
mod upgrade;

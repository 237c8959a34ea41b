//! The API server, request by request, over an empty cluster without controllers.

mod authentication;
mod authorization;
mod custom_resource_definitions;
mod hostile_requests;
mod indexes;
mod paging;
mod watches;
mod writes;

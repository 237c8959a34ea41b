//! `-o`: how objects are shown, in the forms that kubectl has and with the very text that it prints.
//!
//! [`Format`] is what stands behind the flag. Tables are each command's own; every other form is a [`Form`], which
//! prints any object or List: [`print`](Form::print) does it, with `jsonpath` and `columns` for the forms that have a
//! language of their own.

mod columns;
mod form;
mod jsonpath;
mod print;
mod yaml;

pub(crate) use form::{Form, Format, offered, parse, parse_data, parse_objects};
pub(crate) use print::{list, located, name};

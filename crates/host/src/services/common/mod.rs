//! What the targets of changes share: editing their files in place or beside, the diff that a plan shows, what values a
//! setting takes, and what is seen of a service while a change takes effect. And what web servers share: the kinds of the
//! keys of certificates.

pub mod certificate;
pub mod diff;
pub mod edit;
pub mod kept_values;
pub mod pending;
pub mod probe;
pub mod shape;
pub mod starting;
pub mod taking_effect;
pub mod unit;

//! Signed orders: a worker obeys the keys that it was given, and nobody else who can write to its subject.
//!
//! The keys are nkeys (ed25519) as NATS has them for its users: the seed of an operator's creds file signs, the workers have
//! its public key (`U...`). A message is the signature, 64 bytes, and the order as JSON.

use crate::protocol::{ORDER_BYTES_MAX, Order};
use nkeys::KeyPair;
use webdyno_model::{Result, UserError};

const SIGNATURE_BYTES: usize = 64;

/// Signs orders.
pub struct Signer(KeyPair);

impl Signer {
    /// A key of its own, for workers that this program starts itself.
    pub fn generate() -> Self {
        Self(KeyPair::new_user())
    }

    /// The key in a file: a seed (`SU...`), alone or in a creds file of NATS.
    pub fn from_text(text: &str) -> Result<Self> {
        let words = text.split_whitespace();
        let seed = words.filter(|word| word.starts_with("SU")).find_map(|word| KeyPair::from_seed(word).ok());
        seed.map(Self).ok_or_else(|| {
            UserError::usage("there is no seed of a user (SU...) in it")
                .hint("a creds file of NATS has one, and so has the output of: nk -gen user")
        })
    }

    /// The secret itself, to be kept in a file.
    pub fn seed(&self) -> Result<String> {
        let seed = self.0.seed();
        seed.map_err(|error| UserError::cannot_run(format!("cannot write down a key: {error}")))
    }

    /// What workers need to know of it.
    pub fn public_key(&self) -> String {
        self.0.public_key()
    }

    /// The signed order. An error when it is larger than a message may be.
    pub fn sign(&self, order: &Order) -> Result<Vec<u8>> {
        let cannot = |what: String| UserError::cannot_run(format!("cannot sign an order: {what}"));
        let payload = serde_json::to_vec(order).map_err(|error| cannot(error.to_string()))?;
        let mut message = self.0.sign(&payload).map_err(|error| cannot(error.to_string()))?;
        message.extend(payload);
        if message.len() > ORDER_BYTES_MAX {
            let text = format!(
                "the plan of the load has {} bytes, and a message {ORDER_BYTES_MAX} at most",
                message.len()
            );
            return Err(UserError::usage(text)
                .hint("make its bodies and tables smaller, or load from this machine, without --on"));
        }
        Ok(message)
    }
}

/// The keys that a worker obeys.
pub struct TrustedKeys(Vec<KeyPair>);

impl TrustedKeys {
    /// Public keys (`U...`), at least one.
    pub fn new(keys: &[String]) -> Result<Self> {
        let parse = |key: &String| {
            KeyPair::from_public_key(key).map_err(|error| {
                UserError::usage(format!("`{key}` is not the public key of a user: {error}")).hint(
                    "it begins with U: webdyno run --on names its own, and so does: nk -inkey FILE -pubout",
                )
            })
        };
        let keys: Vec<_> = keys.iter().map(parse).collect::<Result<_>>()?;
        match keys.is_empty() {
            true => Err(UserError::usage("a worker obeys the keys that it is given, and there is none")
                .hint("give the public key of whoever may command it with --trust U...")),
            false => Ok(Self(keys)),
        }
    }

    /// The order in a message; why it is refused otherwise.
    pub fn verify(&self, message: &[u8]) -> std::result::Result<Order, String> {
        if message.len() > ORDER_BYTES_MAX {
            return Err(format!("it has {} bytes, and {ORDER_BYTES_MAX} are the most", message.len()));
        }
        let (signature, payload) =
            message.split_at_checked(SIGNATURE_BYTES).ok_or("it has no signature".to_owned())?;
        if !self.0.iter().any(|key| key.verify(payload, signature).is_ok()) {
            return Err("no trusted key signed it, or it was altered".into());
        }
        serde_json::from_slice(payload).map_err(|error| format!("it cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{OrderBody, VERSION};

    fn order() -> Order {
        let (session, worker) = ("s".into(), "w".into());
        Order { version: VERSION, session, worker, sequence: 1, expires_ns: 9, body: OrderBody::Lease }
    }

    #[test]
    fn only_a_trusted_key_that_signed_the_very_order_is_obeyed() {
        let (signer, other) = (Signer::generate(), Signer::generate());
        let trusted = TrustedKeys::new(&[other.public_key(), signer.public_key()]).unwrap();
        let message = signer.sign(&order()).unwrap();
        assert_eq!(trusted.verify(&message).unwrap(), order());
        let mut altered = message.clone();
        let place = altered.len() - 20;
        altered[place] ^= 1;
        let stranger = Signer::generate().sign(&order()).unwrap();
        for (message, why) in [
            (altered, "altered"),
            (stranger, "no trusted key"),
            (message[..40].to_vec(), "no signature"),
            (vec![0; ORDER_BYTES_MAX + 1], "the most"),
        ] {
            assert!(trusted.verify(&message).unwrap_err().contains(why), "{why}");
        }
    }

    #[test]
    fn a_seed_is_found_in_a_creds_file() {
        let signer = Signer::generate();
        let seed = signer.0.seed().unwrap();
        let creds = format!("-----BEGIN NATS USER JWT-----\neyJ0\n-----BEGIN USER NKEY SEED-----\n{seed}\n");
        assert_eq!(Signer::from_text(&creds).unwrap().public_key(), signer.public_key());
        assert_eq!(Signer::from_text("nothing").err().unwrap().exit_code(), 2);
        assert!(TrustedKeys::new(&["x".into()]).is_err() && TrustedKeys::new(&[]).is_err());
    }
}

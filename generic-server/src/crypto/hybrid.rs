//! X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): X25519 of ring and ML-KEM-768 (FIPS 203) at once, for TLS 1.3.
//!
//! A client's share is its encapsulation key and its X25519 key, a server's the ciphertext and its X25519 key, and the secret that of ML-KEM and
//! that of X25519, joined in this order.

use ml_kem::{B32, Ciphertext, Decapsulate, KeyExport, MlKem768, Seed, ml_kem_768};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// Bytes of the encapsulation key that leads a client's share.
const ENCAPSULATION_KEY: usize = 1184;
/// Bytes of the ciphertext that leads a server's share.
const CIPHERTEXT: usize = 1088;
/// Bytes of an X25519 key.
const X25519_KEY: usize = 32;
const BAD_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// The group, as rustls takes it.
pub(super) static X25519_MLKEM768: &dyn SupportedKxGroup = &X25519MlKem768;

#[derive(Debug)]
struct X25519MlKem768;

impl SupportedKxGroup for X25519MlKem768 {
    /// A client's part.
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut seed = Seed::default();
        random(&mut seed)?;
        let key = ml_kem_768::DecapsulationKey::from_seed(seed);
        let classical = X25519.start()?;
        let share = [&*key.encapsulation_key().to_bytes(), classical.pub_key()].concat();
        Ok(Box::new(Started {
            key,
            classical,
            share,
        }))
    }

    /// A server's part.
    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, classical) = split(share, ENCAPSULATION_KEY)?;
        let key = key.try_into().map_err(|_| BAD_SHARE)?;
        // Numbers beyond the modulus are refused here.
        let key = ml_kem_768::EncapsulationKey::new(key).map_err(|_| BAD_SHARE)?;
        let mut message = B32::default();
        random(&mut message)?;
        let (ciphertext, secret) = key.encapsulate_deterministic(&message);
        let classical = X25519.start_and_complete(classical)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&*ciphertext, &classical.pub_key].concat(),
            secret: joined(&secret, &classical.secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// A client's exchange whose share has been sent.
struct Started {
    key: ml_kem_768::DecapsulationKey,
    classical: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, classical) = split(share, CIPHERTEXT)?;
        let ciphertext: &Ciphertext<MlKem768> = ciphertext.try_into().map_err(|_| BAD_SHARE)?;
        let classical = self.classical.complete(classical)?;
        Ok(joined(&self.key.decapsulate(ciphertext), &classical))
    }

    /// X25519 is offered with the same key, so that a server that speaks it alone needs no second hello.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(share)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// The part of ML-KEM and that of X25519.
fn split(share: &[u8], first: usize) -> Result<(&[u8], &[u8]), Error> {
    if share.len() != first + X25519_KEY {
        return Err(BAD_SHARE);
    }
    share.split_at_checked(first).ok_or(BAD_SHARE)
}

fn joined(first: &[u8], second: &SharedSecret) -> SharedSecret {
    SharedSecret::from([first, second.secret_bytes()].concat())
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| GetRandomFailed.into())
}

//! All attacks, by theme.

mod aggregation;
mod answers;
mod authorizers;
mod codecs;
mod connections;
mod credentials;
mod crowds;
mod definitions;
mod escalation;
mod objects;
mod patches;
mod records;
mod requests;
mod startup;
mod tokens;
mod yaml;

use crate::{Attack, Bound, Place, Playing};

/// All of them, in the order in which they are played.
pub fn all() -> Vec<Attack> {
    [
        yaml::attacks(),
        escalation::attacks(),
        patches::attacks(),
        objects::attacks(),
        codecs::attacks(),
        definitions::attacks(),
        requests::attacks(),
        credentials::attacks(),
        aggregation::attacks(),
        answers::attacks(),
        crowds::attacks(),
        connections::attacks(),
        startup::attacks(),
        tokens::attacks(),
        authorizers::attacks(),
        records::attacks(),
    ]
    .concat()
}

/// One attack.
fn attack(
    name: &'static str,
    finding: &'static str,
    place: Place,
    bound: Bound,
    run: for<'a> fn(&'a crate::Arena) -> Playing<'a>,
) -> Attack {
    Attack {
        name,
        finding,
        bound,
        place,
        run,
    }
}

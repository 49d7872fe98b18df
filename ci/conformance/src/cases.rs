//! The cases, by area.

mod between;
mod cancels;
mod collectives;
mod communicators;
mod completion;
mod errors;
mod failures;
mod groups;
mod hints;
mod intercommunicators;
mod lanes;
mod layouts;
mod matching;
mod modes;
mod neighbours;
mod order;
mod partners;
mod probes;
mod repeated;
mod survivors;
mod topologies;
mod transfers;
mod types;
mod windows;

use crate::case::Cases;

pub(crate) fn add(cases: &mut Cases) {
    transfers::add(cases);
    types::add(cases);
    modes::add(cases);
    order::add(cases);
    matching::add(cases);
    layouts::add(cases);
    probes::add(cases);
    completion::add(cases);
    repeated::add(cases);
    partners::add(cases);
    lanes::add(cases);
    cancels::add(cases);
    groups::add(cases);
    communicators::add(cases);
    intercommunicators::add(cases);
    collectives::add(cases);
    between::add(cases);
    neighbours::add(cases);
    hints::add(cases);
    topologies::add(cases);
    errors::add(cases);
    failures::add(cases);
    survivors::add(cases);
    windows::add(cases);
}

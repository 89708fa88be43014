//! Phase score: what it costs to place a task here and not there, in terms that have names.
//!
//! Every term is told in thousandths of a device, so that they can be added: what is going to be left over, what is lost
//! by slow links, what is risked on devices in doubt. The least sum wins; among equals the node that is fullest already,
//! then the name. What others say (what was learned of a job on a model, policies, power) comes by [`Advice`] and has
//! its terms here.
//!
//! [`Advice`]: crate::plan::advice::Advice

use serde::{Deserialize, Serialize};

use crate::capacity::{Free, Kind, Seat};
use crate::plan::ask::{Ask, Match};
use crate::plan::seats;
use crate::queue::Shape;
use crate::settings::Weights;
use crate::waste::Prospect;
use crate::wiring::Wish;

/// What a device that is warm or has had an error costs beside one that is in order.
const DOUBT: f64 = 50.0;

/// Why a place was chosen: its terms, weighed, each in thousandths of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Score {
    /// Each by name; those that cost nothing are left out.
    pub terms: Vec<Term>,
    /// How many kinds of free space were compared.
    pub compared: u32,
}

/// One term of a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// What it is about.
    pub name: TermName,
    /// What it costs, weighed, in thousandths of a device.
    pub milli: i64,
}

/// What a term of a score is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TermName {
    /// GPU that is going to be left over: holes, devices without cores or memory, places lost for large tasks, and what
    /// of an instance is not used.
    Waste,
    /// Links between the devices of a task that are slower than they could be.
    Locality,
    /// Devices that are warm or have had errors.
    Health,
    /// What was learned of such jobs on this model.
    Learned,
    /// What policies say.
    Policy,
    /// What it takes of the power that is left.
    Power,
}

impl TermName {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            TermName::Waste => "waste",
            TermName::Locality => "locality",
            TermName::Health => "health",
            TermName::Learned => "learned",
            TermName::Policy => "policy",
            TermName::Power => "power",
        }
    }
}

/// What a place costs, term by term, before it is weighed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    waste: f64,
    locality: f64,
    health: f64,
    /// What others say of it.
    said: Said,
}

/// What is said of a place by those who know more than the planner, in thousandths of a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said {
    /// What was learned.
    pub learned: f64,
    /// What policies say.
    pub policy: f64,
    /// What power says.
    pub power: f64,
}

/// What decides: millionths of a device that it costs, then how empty the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    micro: i64,
    emptiness: (u64, u64),
}

impl Terms {
    fn each(&self, weights: &Weights) -> [(TermName, f64); 6] {
        let weighed = |value: f64, weight: u32| value * f64::from(weight) / 1_000.0;
        [
            (TermName::Waste, weighed(self.waste, weights.waste)),
            (TermName::Locality, weighed(self.locality, weights.locality)),
            (TermName::Health, weighed(self.health, weights.health)),
            (TermName::Learned, weighed(self.said.learned, weights.learned)),
            (TermName::Policy, weighed(self.said.policy, weights.policy)),
            (TermName::Power, weighed(self.said.power, weights.power)),
        ]
    }

    /// The terms as people see them.
    pub fn told(&self, weights: &Weights, compared: u32) -> Score {
        let terms = self.each(weights).map(|(name, milli)| Term { name, milli: milli.round() as i64 });
        Score { terms: terms.into_iter().filter(|term| term.milli != 0).collect(), compared }
    }

    /// What decides.
    pub fn cost(&self, kind: &Kind, site: Site, weights: &Weights) -> Cost {
        Cost { micro: self.micro(weights), emptiness: kind.emptiness(site.free) }
    }

    /// Whether it costs nothing but what is left over.
    pub(super) fn is_free_but_for_waste(&self) -> bool {
        self.locality == 0.0 && self.health == 0.0
    }

    pub(super) fn micro(&self, weights: &Weights) -> i64 {
        (self.each(weights).iter().map(|(_, milli)| milli).sum::<f64>() * 1_000.0).round() as i64
    }
}

/// A place for a whole gang on one node.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub cost: Cost,
    pub seats: Vec<Seat>,
    pub terms: Terms,
}

/// A node as it is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// What is free on it.
    pub free: Free,
    /// What of that may be used.
    pub usable: Free,
    /// Devices that are warm or have had errors, as bits.
    pub doubtful: u64,
    /// What others say of it.
    pub said: Said,
}

/// The best seats for a gang on a node, found by looking at so many ways to sit at most, and what they cost; nothing if
/// it does not fit.
pub(super) fn place(ask: &Ask, found: &Match, site: Site, weights: &Weights, ways: usize) -> Option<Place> {
    let places = seats::sparing(site).filter_map(|usable| {
        let site = Site { usable, ..site };
        let seats = seats::cheapest(ask, found, site, weights, ways)?;
        let terms = terms(&ask.shape, (&found.kind, &found.prospect), site, &seats);
        Some(Place { cost: terms.cost(&found.kind, site, weights), seats, terms })
    });
    places.min_by_key(|place| place.cost)
}

/// What a place costs, with a seat for each task of the gang.
pub fn terms(shape: &Shape, (kind, prospect): (&Kind, &Prospect), site: Site, seats: &[Seat]) -> Terms {
    let groups = shape.groups.iter().flat_map(|(count, each)| (0..*count).map(move |_| each));
    let (mut after, mut unused, mut locality, mut taken) = (site.free, 0, 0.0, 0);
    for (each, seat) in groups.zip(seats) {
        after = after.without(Free::of_task(each, *seat));
        unused += kind.unused_of(each, *seat);
        locality += apart(kind, shape.wish, *seat);
        taken |= seat.space().touched();
    }
    let waste = |free| kind.waste(prospect, free);
    Terms {
        waste: waste(after) - waste(site.free) + f64::from(unused),
        locality,
        health: DOUBT * f64::from((taken & site.doubtful).count_ones()),
        said: site.said,
    }
}

/// What slow links between the devices of a task cost: as if so much of each device stood idle while it waits for the
/// others.
fn apart(kind: &Kind, wish: Wish, seat: Seat) -> f64 {
    let Seat::Whole(gpus) = seat else { return 0.0 };
    f64::from(wish.cost(kind.wiring.closeness(gpus)) * gpus.count_ones())
}

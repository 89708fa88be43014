//! Phase preempt, across nodes: make room for a gang that no single node could hold, task by task where it costs
//! the least.
//!
//! Tasks that find room without a victim are seated first. Each further one goes to the node on which it costs the
//! least work; who is displaced there frees what they hold on other nodes as well. In the end whoever turns out not
//! to be needed is spared, the dearest first.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::Free;
use crate::guarantee;
use crate::ids::{JobId, NodeId};
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::Draft;
use crate::plan::offers::{all_space, displaceable, least};
use crate::plan::order::Turn;
use crate::plan::preempt::Proposal;
use crate::plan::running::{Candidate, Here};
use crate::plan::spread::{Seated, Seats};

/// Who must go so that the gang fits on several nodes; nothing if it may not, or if all together are not enough.
pub(super) fn proposal(draft: &Draft, turn: &Turn, ask: &Ask) -> Option<Proposal> {
    if !ask.may_span() || !ask.feasible {
        return None;
    }
    if !ask.shape.must_share_a_rack() {
        return Clearing::of(draft, turn, ask, None).map(|clearing| clearing.proposal());
    }
    let racks =
        draft.capacity.racks().filter_map(|(_, room)| Clearing::of(draft, turn, ask, Some(&room.nodes)));
    racks.min_by_key(Clearing::price_in_all).map(|clearing| clearing.proposal())
}

/// What is drawn up for the gang so far.
struct Clearing<'a> {
    draft: &'a Draft<'a>,
    turn: &'a Turn<'a>,
    ask: &'a Ask,
    nodes: BTreeMap<NodeId, Site>,
    victims: BTreeMap<JobId, u64>,
    fewer: guarantee::Leaving,
    /// The nodes it must stay on, if it must stay in one rack.
    rack: Option<&'a BTreeSet<NodeId>>,
}

/// One node as it would be.
#[derive(Debug, Clone, Default)]
struct Site {
    /// Tasks of each group.
    tasks: Vec<u32>,
    /// What victims give back here.
    freed: BTreeMap<JobId, Free>,
}

/// What one more task on a node costs: work lost, then victims, then the name of the node.
type Price = (u64, usize, NodeId);

impl<'a> Clearing<'a> {
    /// Room for the whole gang; nothing if there cannot be any, or if nobody need go for it.
    fn of(
        draft: &'a Draft<'a>,
        turn: &'a Turn<'a>,
        ask: &'a Ask,
        rack: Option<&'a BTreeSet<NodeId>>,
    ) -> Option<Clearing<'a>> {
        let (nodes, victims, fewer) = (BTreeMap::new(), BTreeMap::new(), draft.fewer());
        let mut clearing = Clearing { draft, turn, ask, nodes, victims, fewer, rack };
        let seated = ask.groups_by_size().into_iter().all(|group| clearing.seat_group(group));
        clearing.spare_the_unneeded();
        (seated && !clearing.victims.is_empty()).then_some(clearing)
    }

    /// Work lost in all, then victims.
    fn price_in_all(&self) -> (u64, usize) {
        (self.victims.values().fold(0, |sum, lost| sum.saturating_add(*lost)), self.victims.len())
    }

    fn seat_group(&mut self, group: usize) -> bool {
        let mut left = self.seat_where_free(group, self.ask.shape.groups[group].0);
        if left == 0 {
            return true;
        }
        let mut prices: BTreeSet<Price> =
            self.all_nodes().filter_map(|node| self.price(group, node)).collect();
        while left > 0 {
            let Some(best) = prices.pop_first() else { return false };
            let node = best.2.clone();
            // Guarantees may have made it dearer since, or impossible.
            match self.price(group, &node) {
                None => continue,
                Some(now) if now > best => {
                    prices.insert(now);
                    continue;
                }
                Some(_) => {}
            }
            let touched = self.clear(group, &node);
            left -= 1;
            left -= self.seat_on(group, &node, left);
            let rack = self.rack;
            let near = |node: &NodeId| rack.is_none_or(|rack| rack.contains(node));
            for other in touched.into_iter().filter(near) {
                left -= self.seat_on(group, &other, left);
                prices.retain(|(_, _, node)| *node != other);
                prices.extend(self.price(group, &other));
            }
        }
        true
    }

    fn all_nodes(&self) -> impl Iterator<Item = &'a NodeId> + use<'a> {
        let rack = self.rack;
        let open = self.draft.capacity.nodes().filter(|(_, filed)| filed.open).map(|(node, _)| node);
        open.filter(move |node| rack.is_none_or(|rack| rack.contains(*node)))
    }

    /// Seat as many as fit without anyone going; how many are left.
    fn seat_where_free(&mut self, group: usize, mut left: u32) -> u32 {
        for node in self.all_nodes() {
            left -= self.seat_on(group, node, left);
        }
        left
    }

    fn seat_on(&mut self, group: usize, node: &NodeId, most: u32) -> u32 {
        let Some((found, left)) = self.left_on(node, Free::default()) else { return 0 };
        let count = self.ask.tasks_that_fit(found, group, left).min(most);
        if count > 0 {
            self.add_tasks(group, node, count);
        }
        count
    }

    fn add_tasks(&mut self, group: usize, node: &NodeId, count: u32) {
        let groups = self.ask.shape.groups.len();
        let site = self.nodes.entry(node.clone()).or_default();
        site.tasks.resize(groups, 0);
        site.tasks[group] += count;
    }

    /// What is left on a node when the victims so far have gone, and more is freed, and the tasks so far sit there.
    fn left_on(&self, node: &NodeId, more: Free) -> Option<(&'a Match, Free)> {
        let freed = self.nodes.get(node).map(|site| all(site.freed.values())).unwrap_or_default();
        let (found, seated) = self.seated(node, freed.with(more))?;
        Some((found, seated.left))
    }

    /// The tasks so far on a node where so much is freed; nothing if they do not fit.
    fn seated(&self, node: &NodeId, freed: Free) -> Option<(&'a Match, Seated)> {
        let filed = self.draft.capacity.filed(node).filter(|filed| filed.open)?;
        let found = self.ask.on(&filed.kind)?;
        let after = match self.here(node).filter(|_| freed != Free::default()) {
            Some(here) => here.after(filed.free, freed),
            None => filed.free,
        };
        let mut seated = Seated::new(self.draft.usable(node, after, self.draft.stays(self.turn))?);
        if let Some(site) = self.nodes.get(node).filter(|site| !site.tasks.is_empty()) {
            let groups = self.ask.groups_by_size();
            let fit = groups.into_iter().all(|group| seated.take(self.ask, found, group, site.tasks[group]));
            fit.then_some(())?;
        }
        Some((found, seated))
    }

    fn here(&self, node: &NodeId) -> Option<&'a Here> {
        self.draft.running.as_ref()?.nodes.get(node)
    }

    /// Who must go so that one more task fits on a node.
    fn victims_for_one(&self, group: usize, node: &NodeId) -> Option<Vec<&'a Candidate>> {
        let candidates = self.here(node)?.candidates.iter();
        let others = candidates.filter(|candidate| !self.victims.contains_key(&candidate.job));
        least(displaceable(self.draft, self.turn, self.ask, others, &self.fewer), |victims| {
            let left = self.left_on(node, all_space(victims));
            left.is_some_and(|(found, left)| self.ask.tasks_that_fit(found, group, left) > 0)
        })
    }

    fn price(&self, group: usize, node: &NodeId) -> Option<Price> {
        let victims = self.victims_for_one(group, node)?;
        let lost = victims.iter().fold(0u64, |sum, victim| sum.saturating_add(self.draft.price_of(victim)));
        Some((lost, victims.len(), node.clone()))
    }

    /// Let those go who must for one more task on a node; every node they sat on is returned.
    fn clear(&mut self, group: usize, node: &NodeId) -> BTreeSet<NodeId> {
        let victims = self.victims_for_one(group, node).unwrap_or_default();
        let mut touched = BTreeSet::from([node.clone()]);
        for victim in victims {
            self.victims.insert(victim.job, self.draft.price_of(victim));
            let Some(job) = self.draft.state.jobs.get(&victim.job) else { continue };
            self.fewer.add(self.draft.state, job);
            let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
            for (node, space) in Free::by_node(&job.spec, tasks) {
                self.nodes.entry(node.clone()).or_default().freed.insert(job.id, space);
                touched.insert(node.clone());
            }
        }
        self.add_tasks(group, node, 1);
        touched
    }

    /// Spare whoever is not needed where the tasks sit now, the dearest first.
    fn spare_the_unneeded(&mut self) {
        for job in self.victims_by_loss().into_iter().rev() {
            let mut sites = self.nodes.iter().filter(|(_, site)| site.freed.contains_key(&job));
            if sites.all(|(node, site)| self.fits_without(job, node, site)) {
                self.victims.remove(&job);
                self.nodes.values_mut().for_each(|site| site.freed.retain(|other, _| *other != job));
            }
        }
    }

    fn fits_without(&self, job: JobId, node: &NodeId, site: &Site) -> bool {
        let others = site.freed.iter().filter(|(other, _)| **other != job).map(|(_, space)| space);
        site.tasks.is_empty() || self.seated(node, all(others)).is_some()
    }

    fn victims_by_loss(&self) -> Vec<JobId> {
        let mut victims: Vec<(u64, JobId)> = self.victims.iter().map(|(job, lost)| (*lost, *job)).collect();
        victims.sort_unstable();
        victims.into_iter().map(|(_, job)| job).collect()
    }

    fn proposal(&self) -> Proposal {
        let sites = self.nodes.iter().filter(|(_, site)| !site.tasks.is_empty());
        let seated = sites.filter_map(|(node, site)| {
            let (_, seated) = self.seated(node, all(site.freed.values()))?;
            Some((node.clone(), seated))
        });
        let seats = Seats { nodes: seated.collect() };
        Proposal { spot: seats.spot(self.draft.state, self.ask), victims: self.victims_by_loss() }
    }
}

fn all<'s>(spaces: impl Iterator<Item = &'s Free>) -> Free {
    spaces.fold(Free::default(), |sum, space| sum.with(*space))
}

//! A cluster of several kinds of GPUs under load: equal shares that know how fast each job is on each kind, against equal
//! shares that do not.
//!
//! The rules are those of the published runs (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep
//! Learning Workloads", OSDI'20): jobs of one GPU come by chance at a steady rate, last 10^1.5 to 10^3 minutes on the
//! fastest kind four times in five and 10^3 to 10^4 otherwise, and every six minutes it is chosen anew who runs where.
//! What counts is how long jobs 4,000 to 5,000 take. Every live job has the same claim: in each round it is owed the mean of
//! what all receive, those to whom most is owed run, and what they receive is taken off. Blind, what is received is time;
//! aware, it is work, measured against what the job would get done on an average GPU.

use crate::random::Random;

/// Kinds of GPUs.
pub const KINDS: usize = 3;
/// Seconds of a round.
const ROUND_S: f64 = 360.0;
/// The jobs that count.
const MEASURED: std::ops::Range<usize> = 4_000..5_000;

/// A kind of job: how fast it is on each kind of GPU, in times its speed on the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobType {
    /// By kind of GPU.
    pub speeds: [f64; KINDS],
}

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// Everyone has the same time, on whatever comes.
    Blind,
    /// Everyone gets the same done, and each kind goes to those for whom it matters most.
    Aware,
}

struct Job {
    arrives_s: f64,
    kind: JobType,
    left_s: f64,
    owed: f64,
    number: usize,
}

/// The mean time from arrival to the end, in hours, with so many GPUs of each kind and so many jobs an hour.
pub fn mean_hours(
    types: &[JobType],
    gpus: [usize; KINDS],
    jobs_per_hour: f64,
    seed: u64,
    chooser: Chooser,
) -> f64 {
    let mut random = Random(seed);
    let mut coming = arrivals(types, jobs_per_hour, &mut random);
    let (mut live, mut now_s, mut sum_s, mut open) = (Vec::new(), 0.0, 0.0, MEASURED.len());
    while open > 0 {
        while let Some(job) = coming.pop_if(|job| job.arrives_s <= now_s) {
            live.push(job);
        }
        let places = match chooser {
            Chooser::Blind => blind(&mut live, gpus, &mut random),
            Chooser::Aware => aware(&mut live, gpus),
        };
        work(&mut live, &places, chooser);
        live.retain(|job| {
            let over = job.left_s <= 0.0;
            if over && MEASURED.contains(&job.number) {
                // What was done too much tells how long before the end of the round it was over.
                sum_s += now_s + ROUND_S + job.left_s - job.arrives_s;
                open -= 1;
            }
            !over
        });
        now_s += ROUND_S;
    }
    sum_s / MEASURED.len() as f64 / 3_600.0
}

/// The last comes first.
fn arrivals(types: &[JobType], jobs_per_hour: f64, random: &mut Random) -> Vec<Job> {
    let mut at_s = 0.0;
    let mut jobs: Vec<Job> = (0..MEASURED.end + 200)
        .map(|number| {
            at_s += random.exponential(3_600.0 / jobs_per_hour);
            let exponent = match random.below(5) {
                0 => 3.0 + random.unit(),
                _ => 1.5 + 1.5 * random.unit(),
            };
            let left_s = 10f64.powf(exponent) * 60.0;
            Job { arrives_s: at_s, kind: *random.of(types), left_s, owed: 0.0, number }
        })
        .collect();
    jobs.reverse();
    jobs
}

/// Those to whom most is owed come to stand first; how many run.
fn most_owed_first(live: &mut [Job], gpus: [usize; KINDS]) -> usize {
    live.sort_by(|one, other| other.owed.total_cmp(&one.owed).then(one.number.cmp(&other.number)));
    live.len().min(gpus.iter().sum())
}

/// A kind of GPU for each that runs, by chance.
fn blind(live: &mut [Job], gpus: [usize; KINDS], random: &mut Random) -> Vec<usize> {
    let running = most_owed_first(live, gpus);
    let mut kinds: Vec<usize> = (0..KINDS).flat_map(|kind| std::iter::repeat_n(kind, gpus[kind])).collect();
    for place in 0..running {
        let other = place + random.below((kinds.len() - place) as u64) as usize;
        kinds.swap(place, other);
    }
    kinds.truncate(running);
    kinds
}

/// A kind of GPU for each that runs: who would lose most by the second best goes first, as long as there is a best.
fn aware(live: &mut [Job], gpus: [usize; KINDS]) -> Vec<usize> {
    let running = most_owed_first(live, gpus);
    let mut left = gpus;
    let mut places = vec![0; running];
    let mut waiting: Vec<usize> = (0..running).collect();
    while !waiting.is_empty() {
        let mut wishes: Vec<(f64, usize, usize)> =
            waiting.iter().map(|job| wish(&live[*job], &left, *job)).collect();
        wishes.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let before = left;
        waiting.clear();
        for (_, job, kind) in wishes {
            // When a kind is used up, those who are left wish anew.
            let same = (0..KINDS).all(|kind| (left[kind] > 0) == (before[kind] > 0));
            if same {
                left[kind] -= 1;
                places[job] = kind;
            } else {
                waiting.push(job);
            }
        }
    }
    places
}

/// How much a job would lose by the second best kind that is left, and which is its best.
fn wish(job: &Job, left: &[usize; KINDS], number: usize) -> (f64, usize, usize) {
    let mut kinds: Vec<(f64, usize)> =
        (0..KINDS).filter(|kind| left[*kind] > 0).map(|kind| (job.kind.normal(kind), kind)).collect();
    kinds.sort_by(|one, other| other.0.total_cmp(&one.0));
    let second = kinds.get(1).map_or(0.0, |(speed, _)| *speed);
    kinds.first().map_or((0.0, number, 0), |(speed, kind)| (speed - second, number, *kind))
}

impl JobType {
    /// Its speed on a kind, in times its mean speed.
    fn normal(&self, kind: usize) -> f64 {
        let mean = self.speeds.iter().sum::<f64>() / KINDS as f64;
        self.speeds[kind] / mean.max(f64::MIN_POSITIVE)
    }
}

/// One round: those who run work, and everyone is owed the mean of what they received.
fn work(live: &mut [Job], places: &[usize], chooser: Chooser) {
    let mut received = 0.0;
    for (job, kind) in live.iter_mut().zip(places) {
        let got = match chooser {
            Chooser::Blind => 1.0,
            Chooser::Aware => job.kind.normal(*kind),
        };
        job.owed -= got;
        received += got;
        let (speed, left_s) = (job.kind.speeds[*kind], job.left_s);
        job.left_s -= speed * ROUND_S;
        if job.left_s <= 0.0 {
            // From here on it is the time between its end and that of the round, below zero.
            job.left_s = left_s / speed.max(f64::MIN_POSITIVE) - ROUND_S;
        }
    }
    let mean = received / live.len().max(1) as f64;
    live.iter_mut().for_each(|job| job.owed += mean);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(speed: f64) -> JobType {
        JobType { speeds: [speed; KINDS] }
    }

    #[test]
    fn where_all_gpus_are_alike_knowing_them_gains_nothing() {
        let run = |chooser| mean_hours(&[same(1.0)], [36; KINDS], 3.0, 1, chooser);
        let (blind, aware) = (run(Chooser::Blind), run(Chooser::Aware));
        assert!((blind / aware - 1.0).abs() < 0.01, "{blind} {aware}");
    }

    #[test]
    fn each_kind_goes_to_those_for_whom_it_matters() {
        let job =
            |speeds, number| Job { arrives_s: 0.0, kind: JobType { speeds }, left_s: 1.0, owed: 0.0, number };
        let mut live = vec![job([1.0, 0.9, 0.8], 0), job([1.0, 0.2, 0.1], 1), job([1.0, 0.5, 0.1], 2)];
        assert_eq!(aware(&mut live, [1, 1, 1]), [2, 0, 1]);
    }

    #[test]
    fn a_job_alone_takes_as_long_as_it_is() {
        let mut live = vec![Job { arrives_s: 0.0, kind: same(2.0), left_s: 100.0, owed: 0.0, number: 0 }];
        let places = aware(&mut live, [1, 1, 1]);
        work(&mut live, &places, Chooser::Aware);
        assert_eq!(live[0].left_s, 50.0 - ROUND_S);
    }
}

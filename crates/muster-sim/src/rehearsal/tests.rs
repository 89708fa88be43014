//! Small logs, worked out by hand, and laws that hold for any log.

use muster_core::settings::Objective;
use muster_core::time::SECOND;

use super::*;
use crate::figures::{Figures, fates, figures};
use crate::jobs::Gang;
use crate::random::Random;
use crate::replay::Policy;
use crate::replay::policies::{Easy, Fifo, Las, Sjf, Srsf, Srtf, Tiresias};

/// Jobs by GPUs, submission and work, in seconds.
fn jobs(jobs: &[(u32, i64, i64)]) -> Vec<LoggedJob> {
    let job = |(gpus, submit_s, work_s): &(u32, i64, i64)| {
        LoggedJob::new("", submit_s * SECOND, work_s * SECOND, Gang::Total(*gpus))
    };
    jobs.iter().map(job).collect()
}

fn played(jobs: &[LoggedJob], words: &str, assumptions: &Assumptions) -> History {
    rehearse(jobs, &Site::of_words(words).unwrap(), assumptions, &mut |_| ())
}

/// Waits and ends of all jobs, in seconds.
fn told(jobs: &[LoggedJob], history: &History) -> Vec<(i64, i64)> {
    let fates = fates(jobs, history);
    let told = |(job, fate): (&LoggedJob, &Option<crate::figures::Fate>)| {
        let fate = fate.unwrap();
        (fate.wait_ms / SECOND, (job.submit_ms + fate.completion_ms) / SECOND)
    };
    jobs.iter().zip(&fates).map(told).collect()
}

/// A long job of half the node, a longer one of all of it, a short one of a half and a shorter one of all.
fn mixed() -> Vec<LoggedJob> {
    jobs(&[(4, 0, 100), (8, 10, 200), (4, 20, 50), (8, 30, 10)])
}

#[test]
fn waits_are_those_worked_out_by_hand() {
    // The second waits for the first; the third is over before and passes; the last comes after the second.
    let history = played(&mixed(), "1x8xV100", &Assumptions { told: true, ..Assumptions::default() });
    assert_eq!(told(&mixed(), &history), [(0, 100), (90, 300), (0, 70), (270, 310)]);
    let figures = figures("muster", &mixed(), &history);
    assert_eq!((figures.done, figures.preemptions, figures.makespan_s), (4, 0, 310.0));
    assert_eq!((figures.wait_s.mean, figures.wait_s.p50, figures.wait_s.max), (90.0, 0.0, 270.0));
    // (100 + 290 + 50 + 280) / 4.
    assert_eq!(figures.completion_s.mean, 180.0);
    // 100 / 100, 290 / 200, 50 / 50, 280 / 10.
    assert_eq!((figures.slowdown.mean, figures.slowdown.max), (7.8625, 28.0));
    // 4 × 30 + 4 × 10 of 8 × 30 while they came; 400 + 1,600 + 200 + 80 of 8 × 310 in all.
    assert_eq!((figures.utilisation, figures.utilisation_to_the_end), (0.6667, 0.9194));
    // Four were free from 10 to 20 and from 70 to 100 while others waited for eight: all of it is of no use to them.
    assert_eq!((figures.idle_while_waiting, figures.fragmentation), (0.0645, Some(0.0645)));
    // 2,280 GPU-seconds at 300 W.
    assert_eq!(figures.energy_kwh, Some(0.19));
}

/// One of high priority comes when the other has run for 50 s.
fn pushed(saves_every_ms: Option<i64>) -> (Vec<LoggedJob>, History) {
    let mut jobs = jobs(&[(8, 0, 100), (8, 50, 10)]);
    jobs[1].priority = Some(5_000);
    let history = played(&jobs, "1x8xV100", &Assumptions { saves_every_ms, ..Assumptions::default() });
    (jobs, history)
}

#[test]
fn who_is_displaced_goes_on_from_its_last_save() {
    let (jobs, history) = pushed(Some(20 * SECOND));
    // It had saved 40 s, and goes on at 60.
    assert_eq!(told(&jobs, &history), [(0, 120), (0, 60)]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.preemptions, figures.lost_gpu_s), (1, 80.0));
}

#[test]
fn who_is_displaced_and_saves_nothing_begins_anew() {
    let (jobs, history) = pushed(None);
    assert_eq!(told(&jobs, &history), [(0, 160), (0, 60)]);
    assert_eq!(figures("muster", &jobs, &history).lost_gpu_s, 400.0);
}

#[test]
fn a_time_limit_ends_a_job() {
    let mut jobs = jobs(&[(8, 0, 100), (8, 5, 10)]);
    jobs[0].time_limit_ms = Some(60 * SECOND);
    let history = played(&jobs, "1x8xV100", &Assumptions::default());
    assert_eq!(told(&jobs, &history), [(0, 60), (55, 70)]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.done, figures.timed_out, figures.preemptions), (1, 1, 0));
}

#[test]
fn who_fits_nowhere_is_refused_and_said() {
    let mut jobs = jobs(&[(8, 0, 10), (17, 1, 10)]);
    jobs.push(LoggedJob { gpus: Gang::Tasks { count: 1, each: 9 }, ..jobs[0].clone() });
    let history = played(&jobs, "2x8xV100", &Assumptions::default());
    assert_eq!(history.refused.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1, 2]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.jobs, figures.done, figures.refused), (3, 1, 2));
}

#[test]
fn a_cluster_is_made_that_a_log_fits_on() {
    // Sixteen at once for 4 and for 6 of the 100 s in which jobs come.
    assert_eq!(Site::words_for(&jobs(&[(8, 0, 200), (8, 0, 4), (1, 100, 1)])), "1x8xV100");
    assert_eq!(Site::words_for(&jobs(&[(8, 0, 200), (8, 0, 6), (1, 100, 1)])), "2x8xV100");
    assert_eq!(Site::words_for(&jobs(&[(40, 0, 1), (1, 10_000, 1)])), "5x8xV100", "the largest fits");
    assert_eq!(Site::words_for(&jobs(&[(8, 0, 10), (16, 0, 20)])), "3x8xV100", "all come at once");
    let about = Site::of_words("2x8xV100, 1x4xH100").unwrap();
    assert_eq!((about.gpus(), about.uniform_gpus()), (20, None));
    assert_eq!(Site::of_words("4xH100"), Site::of_words("4x8xH100"));
    for words in ["", "8", "8x", "0x8xV100", "2x65xV100", "x8xV100", "2x8x"] {
        assert!(Site::of_words(words).is_err(), "{words}");
    }
}

/// Some jobs of some tenants; now and then with a limit, a priority, or saves.
fn any_jobs(random: &mut Random) -> Vec<LoggedJob> {
    let mut submit_ms = 0;
    let mut job = |_| {
        submit_ms += random.between(0, 90) * SECOND;
        let gpus = *random.of(&[1, 1, 1, 2, 4, 8, 16]);
        let gang = if random.happens(200) { Gang::Tasks { count: 2, each: 2 } } else { Gang::Total(gpus) };
        let mut job = LoggedJob::new("", submit_ms, random.between(1, 900) * SECOND, gang);
        job.tenant = random.of(&["Red Team", "red-team", "blue"]).to_string();
        job.time_limit_ms = random.happens(300).then(|| random.between(60, 1_200) * SECOND);
        job.priority = random.happens(200).then(|| random.between(0, 900) as u32);
        job.saves_every_ms = random.happens(400).then(|| random.between(10, 300) * SECOND);
        job
    };
    (0..80).map(&mut job).collect()
}

/// Every job ends once, nobody starts before it came, no GPU is held twice, and GPU-time is work, or lost.
fn check(jobs: &[LoggedJob], history: &History, figures: &Figures) {
    let mut ends = vec![0; jobs.len()];
    let mut useful_ms = vec![0; jobs.len()];
    history.refused.iter().for_each(|(job, _)| ends[*job] += 1);
    for stretch in &history.stretches {
        ends[stretch.job] += usize::from(stretch.end != End::Displaced);
        useful_ms[stretch.job] += stretch.useful_ms;
        assert!(jobs[stretch.job].submit_ms <= stretch.from_ms && stretch.from_ms <= stretch.to_ms);
        assert!(stretch.useful_ms <= stretch.ms());
    }
    assert!(ends.iter().all(|ends| *ends == 1), "{ends:?}");
    for (job, fate) in fates(jobs, history).iter().enumerate() {
        let done = fate.is_some_and(|fate| fate.end == End::Done);
        assert!(!done || useful_ms[job] == jobs[job].work_ms, "{job}: {} ms", useful_ms[job]);
    }
    let gpus = |job: usize| f64::from(jobs[job].gpus.total());
    let work_gpu_s: f64 = (0..jobs.len()).map(|job| useful_ms[job] as f64 / 1e3 * gpus(job)).sum();
    let held_gpu_s = figures.gpu_hours * 3_600.0;
    assert!((held_gpu_s - work_gpu_s - figures.lost_gpu_s).abs() < 1.0, "{held_gpu_s} {work_gpu_s}");
    let of_tenants: f64 = figures.tenants.iter().map(|tenant| tenant.gpu_hours).sum();
    assert!((figures.gpu_hours - of_tenants).abs() < 0.01);
    assert_eq!(figures.done + figures.timed_out + figures.refused, figures.jobs);
    let parts = figures.utilisation_over_time.iter().map(|bin| bin.utilisation);
    let parts = parts.chain([figures.utilisation, figures.utilisation_to_the_end]);
    parts.for_each(|part| assert!((0.0..=1.0).contains(&part), "{part}"));
    let idle = figures.idle_while_waiting;
    assert!(
        figures.fragmentation.is_none_or(|part| part <= idle)
            && figures.utilisation_to_the_end + idle <= 1.001
    );
}

#[test]
fn every_job_ends_once_and_gpu_time_adds_up() {
    let mut displaced = 0;
    for seed in 0..12 {
        let jobs = any_jobs(&mut Random(seed));
        for objective in [Objective::Fair, Objective::Fast] {
            let assumptions = Assumptions { objective, told: seed % 3 == 0, ..Assumptions::default() };
            let history = played(&jobs, "2x8xV100", &assumptions);
            let figures = figures("muster", &jobs, &history);
            check(&jobs, &history, &figures);
            displaced += figures.preemptions;
        }
    }
    assert!(displaced > 0, "nobody was ever displaced, so nothing was asked of that");
}

#[test]
fn the_published_policies_keep_the_same_laws() {
    let site = Site::of_words("4x4xV100").unwrap();
    for seed in 0..4 {
        let jobs = any_jobs(&mut Random(seed));
        let policies: [(&str, Box<dyn Policy>); 7] = [
            ("fifo", Box::new(Fifo)),
            ("sjf", Box::new(Sjf)),
            ("srtf", Box::new(Srtf)),
            ("srsf", Box::new(Srsf)),
            ("tiresias", Box::new(Tiresias::default())),
            ("las", Box::new(Las)),
            ("easy", Box::new(Easy)),
        ];
        for (name, mut policy) in policies {
            let history = against(&jobs, &site, &mut *policy, &mut |_| ()).unwrap();
            let figures = figures(name, &jobs, &history);
            check(&jobs, &history, &figures);
            assert_eq!(figures.fragmentation.is_none(), name == "tiresias", "{name}");
        }
    }
}

#[test]
fn a_published_policy_gives_the_waits_of_its_own_tests() {
    let site = Site::of_words("1x8xV100").unwrap();
    let history = against(&mixed(), &site, &mut Srtf, &mut |_| ()).unwrap();
    assert_eq!(told(&mixed(), &history), [(0, 110), (100, 310), (0, 80), (0, 40)]);
    assert_eq!(figures("srtf", &mixed(), &history).preemptions, 2);
    let two_kinds = Site::of_words("1x8xV100,1x4xV100").unwrap();
    let refused = against(&mixed(), &two_kinds, &mut Srtf, &mut |_| ());
    assert_eq!(refused, Err(NotForBaselines::Nodes));
}

#[test]
fn the_same_log_gives_the_same_bytes() {
    let jobs = any_jobs(&mut Random(7));
    let once = || {
        let history = played(&jobs, "2x8xV100", &Assumptions::default());
        muster_json::to_string(&figures("muster", &jobs, &history))
    };
    assert_eq!(once(), once());
}

#[test]
fn what_is_free_counts_only_while_someone_waits_who_cannot_use_it() {
    let site = Site::of_words("2x4xV100").unwrap();
    let (one, other) = (site.nodes()[0].0.clone(), site.nodes()[1].0.clone());
    let task = |node: &muster_core::NodeId, gpus: &[u8]| PlacedTask {
        rank: 0,
        group: 0,
        node: node.clone(),
        gpus: gpus.to_vec(),
        share: None,
    };
    let mut floor = Floor::new(&site);
    floor.take(JobId::single(1), &[task(&one, &[0, 1, 2]), task(&other, &[0, 1])]);
    floor.note_free(0);
    floor.waits(4);
    floor.waits(2);
    // Nobody waited for 10 s. Then one was free that was of no use, and two that the smaller one could use.
    floor.note_free(10 * SECOND);
    floor.waits_no_more(2);
    // From 30 on no GPU is of use to the one that needs four, until 40.
    floor.note_free(30 * SECOND);
    floor.give_back(JobId::single(1));
    floor.note_free(40 * SECOND);
    let gpu_s = |gpu_ms: u128| gpu_ms / SECOND as u128;
    let free = floor.free();
    assert_eq!(gpu_s(free.while_waiting_gpu_ms), 3 * 20 + 3 * 10);
    assert_eq!(free.fragments_gpu_ms.map(gpu_s), Some(20 + 3 * 10));
    // All is free now and of use.
    floor.note_free(50 * SECOND);
    assert_eq!(floor.free().fragments_gpu_ms.map(gpu_s), Some(50));
}

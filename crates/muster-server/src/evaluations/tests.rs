use super::*;

fn bounds() -> Bounds {
    Bounds {
        running: 2,
        open: 5,
        open_per_caller: 3,
        wait: Duration::from_secs(60),
        ahead: Duration::from_secs(60),
    }
}

fn status(refused: Result<Evaluation, Fault>) -> Option<u16> {
    refused.err().map(|fault| fault.status().as_u16())
}

/// So many evaluations that have been asked for, each until it is let in and has ended.
fn ask(
    evaluations: &Arc<Evaluations>,
    caller: &'static str,
    times: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    let one = || {
        let evaluations = evaluations.clone();
        tokio::spawn(
            async move { drop(evaluations.begin(caller).await.unwrap_or_else(|_| panic!("refused"))) },
        )
    };
    (0..times).map(|_| one()).collect()
}

#[tokio::test]
async fn a_caller_above_its_bound_is_refused_and_others_are_not() {
    let evaluations = Arc::new(Evaluations::new(bounds()));
    let held = (evaluations.begin("a").await.ok(), evaluations.begin("a").await.ok());
    let waiting = ask(&evaluations, "a", 1);
    tokio::task::yield_now().await;
    assert_eq!(status(evaluations.begin("a").await), Some(429), "two run, one waits");
    let others = ask(&evaluations, "b", 2);
    tokio::task::yield_now().await;
    assert_eq!(status(evaluations.begin("c").await), Some(503), "five are open");
    drop(held);
    for one in waiting.into_iter().chain(others) {
        one.await.unwrap();
    }
    let counts = evaluations.counts();
    assert_eq!((counts.evaluations, counts.running, counts.running_max, counts.refused), (5, 0, 2, 2));
}

#[tokio::test]
async fn a_caller_that_has_used_its_time_waits() {
    let evaluations = Evaluations::new(Bounds { ahead: Duration::ZERO, ..bounds() });
    let held = evaluations.begin("a").await.ok();
    lock(&evaluations.callers).known.get_mut("a").unwrap().debt = Duration::from_secs(60);
    drop(held);
    let fault = evaluations.begin("a").await.err().unwrap();
    assert_eq!((fault.status().as_u16(), fault.problem().code.as_str()), (429, "too-many-evaluations"));
    assert!(evaluations.begin("b").await.is_ok());
}

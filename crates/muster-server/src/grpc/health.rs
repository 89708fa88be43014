//! The standard health service: SERVING while this server leads and its database answers, as `/readyz` says.

use std::time::Duration;

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::http::{AppState, not_ready_because};

/// How often the readiness is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The health of the server, named ``, and of each public service.
pub async fn service(app: &AppState, services: &[String]) -> HealthServer<impl Health + use<>> {
    let names: Vec<String> = [String::new()].into_iter().chain(services.iter().cloned()).collect();
    let (reporter, service) = tonic_health::server::health_reporter();
    report(&reporter, &names, ServingStatus::NotServing).await;
    tokio::spawn(keep_current(app.clone(), reporter, names));
    service
}

/// Until the server stops. Without a status the streams of watchers end, so that no watcher delays the stop.
async fn keep_current(app: AppState, mut reporter: HealthReporter, names: Vec<String>) {
    let mut stopping = app.stopping.clone();
    let mut reported = ServingStatus::NotServing;
    loop {
        let status = match not_ready_because(&app).await {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        if status != reported {
            report(&reporter, &names, status).await;
            reported = status;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break,
        }
    }
    report(&reporter, &names, ServingStatus::NotServing).await;
    for name in &names {
        reporter.clear_service_status(name).await;
    }
}

async fn report(reporter: &HealthReporter, names: &[String], status: ServingStatus) {
    for name in names {
        reporter.set_service_status(name, status).await;
    }
}

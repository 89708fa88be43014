//! The gRPC API: roles, tenants, errors, streams, TLS, health and reflection.

use std::collections::HashMap;

use muster_core::objects::token::Role;
use muster_server::config::{Config, RawConfig};
use muster_server::http::access::{ACCESS_RULES, AccessRule, access_rule};
use muster_server::server::{self, Adapters, InProcessNodes};
use muster_server::tls;
use muster_wire::v1::{self, log_event};
use serde_json::json;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::grpc_client::{GrpcClient, GrpcError, PublicMethod, public_methods};
use crate::test_server::{TWO_NODES, TestServer};

const ROLES: [Role; 5] = [Role::Viewer, Role::Member, Role::TenantAdmin, Role::Operator, Role::Admin];

/// A server with tokens and the tenants `red` and `blue`.
fn server_with_tokens() -> TestServer {
    let server = TestServer::with_settings(&[("auth.mode", "tokens")], Some(TWO_NODES)).wait_for_gpus(8);
    for tenant in ["red", "blue"] {
        assert_eq!(server.client().post("/api/v1/tenants", &json!({"name": tenant})).status, 201);
    }
    server
}

fn client_with_role(server: &TestServer, role: &str, tenant: Option<&str>) -> GrpcClient {
    let body = json!({"name": format!("{role}-{}", tenant.unwrap_or("all")), "role": role, "tenant_id": tenant});
    let reply = server.client().post("/api/v1/tokens", &body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    server.grpc().with_token(reply.json()["secret"].as_str().unwrap())
}

fn job(name: &str) -> v1::SubmitJob {
    let annotations = HashMap::from([("muster.sim/runtime".to_string(), "1h".to_string())]);
    v1::SubmitJob {
        name: Some(name.to_string()),
        command: vec!["sleep".to_string()],
        annotations,
        ..v1::SubmitJob::default()
    }
}

fn get_job(id: &str) -> v1::GetJobRequest {
    v1::GetJobRequest { id: id.to_string() }
}

fn expect(error: &GrpcError, code: Code, problem_code: &str) {
    assert_eq!((error.code, error.problem_code.as_str()), (code, problem_code), "{error:?}");
    let problem = error.problem.as_ref().expect("a problem in the details");
    assert_eq!((problem.code.as_str(), &problem.detail), (problem_code, &error.message));
}

#[test]
fn every_method_needs_the_role_of_its_rest_operation() {
    let server = server_with_tokens();
    let tenant = |role: Role| (!role.is_cluster_wide()).then_some("red");
    let clients: Vec<(Role, GrpcClient)> =
        ROLES.iter().map(|role| (*role, client_with_role(&server, role.as_str(), tenant(*role)))).collect();
    let anonymous = server.grpc().anonymous();
    let (mut allowed, mut denied) = (0, 0);
    for public in public_methods() {
        let minimum = minimum_role(&public);
        let call = |client: &GrpcClient| client.call(&public.method, public.request_for("nothing"));
        expect(&call(&anonymous).unwrap_err(), Code::Unauthenticated, "unauthorized");
        expect(&call(&anonymous.with_token("mst_x_y")).unwrap_err(), Code::Unauthenticated, "unauthorized");
        for (role, client) in &clients {
            let outcome = call(client);
            let is_denied = outcome.as_ref().is_err_and(|error| error.problem_code == "forbidden");
            assert_eq!(is_denied, *role < minimum, "{} as {}: {outcome:?}", public.name(), role.as_str());
            if let (true, Err(error)) = (is_denied, &outcome) {
                expect(error, Code::PermissionDenied, "forbidden");
            }
            *if is_denied { &mut denied } else { &mut allowed } += 1;
        }
    }
    assert!(allowed > 50 && denied > 20, "{allowed} allowed, {denied} denied");

    let audit = server.client().get("/api/v1/audit?limit=1000").json();
    let entries = audit["entries"].as_array().unwrap();
    let is_denied_drain = |entry: &serde_json::Value| {
        entry["refused"] == "forbidden" && entry["action"] == "POST /api/v1/nodes/{id}/drain"
    };
    assert!(entries.iter().any(is_denied_drain), "denied calls are in the audit log under the operation: {audit}");
}

fn minimum_role(public: &PublicMethod) -> Role {
    let method = public.http_method.parse().unwrap();
    match access_rule(&method, &public.path) {
        Some(AccessRule::NeedsRoleFor(permission)) => permission.minimum_role(),
        rule => panic!("{}: {rule:?}", public.name()),
    }
}

#[test]
fn the_operations_that_only_rest_has_are_these() {
    let by_grpc: Vec<(String, String)> =
        public_methods().into_iter().map(|public| (public.http_method, public.path)).collect();
    let only_rest = ACCESS_RULES.iter().filter(|(method, path, rule)| {
        *rule != AccessRule::Public && !by_grpc.contains(&(method.to_string(), path.to_string()))
    });
    let is_of_a_service = |path: &str| {
        ["/api/v1/jobs", "/api/v1/tenants", "/api/v1/nodes", "/api/v1/cluster", "/api/v1/whoami", "/api/v1/events"]
            .iter()
            .any(|service| path.starts_with(service))
    };
    let missing: Vec<String> = only_rest
        .filter(|(_, path, _)| is_of_a_service(path))
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    let expected = [
        "POST /api/v1/jobs/{id}/checkpoint",
        "GET /api/v1/jobs/{id}/receipts",
        "GET /api/v1/jobs/{id}/events",
        "POST /api/v1/jobs/{id}/exec",
        "PUT /api/v1/tenants/{id}",
        "POST /api/v1/nodes",
        "PATCH /api/v1/nodes/{id}",
    ];
    assert_eq!(missing, expected, "a new operation needs a method, or a line here and in docs/grpc.md");
}

#[test]
fn objects_of_other_tenants_do_not_exist() {
    let server = server_with_tokens();
    let red = client_with_role(&server, "member", Some("red"));
    let blue = client_with_role(&server, "member", Some("blue"));
    let after = server.client().get("/api/v1/cluster/status").json()["seq"].as_u64().unwrap();
    let id = red.get(red.jobs().submit(job("secret"))).job_id;
    assert_eq!(red.get(red.jobs().get(get_job(&id))).tenant_id, "red");
    let hidden = [
        blue.error(blue.jobs().get(get_job(&id))),
        blue.error(blue.jobs().why(v1::WhyRequest { id: id.clone() })),
        blue.error(blue.jobs().cancel(v1::CancelJobRequest { id: id.clone() })),
        blue.error(blue.jobs().logs(v1::LogsRequest { id: id.clone(), ..Default::default() })),
    ];
    for error in hidden {
        expect(&error, Code::NotFound, "unknown-job");
    }
    assert_eq!(blue.get(blue.jobs().list(v1::ListJobsRequest::default())).total, 0);
    let red_tenant = v1::GetTenantRequest { id: "red".to_string() };
    expect(&blue.error(blue.tenants().get(red_tenant)), Code::NotFound, "unknown-tenant");
    let foreign = v1::SubmitJob { tenant_id: Some("red".to_string()), ..job("x") };
    expect(&blue.error(blue.jobs().submit(foreign)), Code::NotFound, "unknown-tenant");

    let own = blue.get(blue.jobs().submit(job("own"))).job_id;
    let mut events = blue.get(blue.watch().events(v1::EventsRequest { after: Some(after), job: None }));
    let first = std::iter::from_fn(|| blue.next(&mut events)).map(Result::unwrap).find(|event| event.job_id.is_some());
    assert_eq!(first.unwrap().job_id, Some(own), "events of jobs of other tenants are not sent");
}

#[test]
fn an_idempotency_key_is_for_one_job() {
    let server = TestServer::new();
    let client = server.grpc().with("idempotency-key", "k1");
    // Maps of messages have no order: neither the client nor the server may depend on one.
    let submission = || v1::SubmitJob {
        environment: (0..40).map(|number| (format!("NAME_{number}"), number.to_string())).collect(),
        labels: (0..40).map(|number| (format!("label-{number}"), number.to_string())).collect(),
        ..job("once")
    };
    let first = client.get(client.jobs().submit(submission())).job_id;
    for _ in 0..5 {
        assert_eq!(client.get(client.jobs().submit(submission())).job_id, first);
    }
    let other = client.error(client.jobs().submit(job("another")));
    expect(&other, Code::FailedPrecondition, "key-reused");
    assert_eq!(server.get("/api/v1/jobs")["total"], 1);
}

#[test]
fn errors_have_the_code_the_sentence_and_the_hint_of_rest() {
    let server = TestServer::new();
    let client = server.grpc();
    let limited = v1::TenantSpec { name: Some("small".into()), max_gpus: Some(1), ..Default::default() };
    client.get(client.tenants().create(limited.clone()));
    expect(&client.error(client.tenants().create(limited)), Code::AlreadyExists, "duplicate-tenant");
    let large = v1::SubmitJob { tenant_id: Some("small".into()), gpu_count: Some(2), ..job("x") };
    let over_quota = client.error(client.jobs().submit(large));
    expect(&over_quota, Code::PermissionDenied, "over-quota");
    let by_rest =
        server.client().post("/api/v1/jobs", &json!({"tenant_id": "small", "command": ["x"], "gpu_count": 2}));
    let (by_rest, problem) = (by_rest.json(), over_quota.problem.unwrap());
    assert_eq!(by_rest["detail"], problem.detail);
    assert_eq!((by_rest["hint"].as_str(), by_rest["status"].as_u64()), (problem.hint.as_deref(), Some(403)));
    assert!(problem.hint.is_some());

    expect(&client.error(client.jobs().get(get_job("job-77"))), Code::NotFound, "unknown-job");
    expect(&client.error(client.jobs().get(get_job("../tenants?x=1#/%2e%2e"))), Code::NotFound, "unknown-job");
    expect(&client.error(client.jobs().get(get_job(""))), Code::InvalidArgument, "malformed");
    let wrong = v1::SubmitJob { priority: Some("urgent".into()), ..job("x") };
    expect(&client.error(client.jobs().submit(wrong)), Code::InvalidArgument, "invalid");
    let huge = v1::SubmitJob { gpu_count: Some(9), ..job("x") };
    expect(&client.error(client.jobs().submit(huge)), Code::InvalidArgument, "infeasible");
    let page = v1::ListJobsRequest { limit: Some(0), ..Default::default() };
    expect(&client.error(client.jobs().list(page)), Code::InvalidArgument, "invalid");
    let running = server.wait_for_state(&server.submit_sleeper("1h", 1), "running");
    let its_node = v1::RemoveNodeRequest { id: running["node_name"].as_str().unwrap().to_string() };
    expect(&client.error(client.nodes().remove(its_node)), Code::FailedPrecondition, "node-busy");
}

#[test]
fn a_field_that_is_zero_differs_from_one_that_is_absent() {
    let server = TestServer::new();
    let client = server.grpc();
    let zero = v1::SubmitJob { gpu_count: Some(0), ..job("x") };
    expect(&client.error(client.jobs().submit(zero)), Code::InvalidArgument, "invalid");
    let absent = client.get(client.jobs().submit(job("one"))).job_id;
    assert_eq!(client.get(client.jobs().get(get_job(&absent))).gpu_count, 1);

    let spec = v1::TenantSpec { name: Some("t".into()), max_gpus: Some(0), ..Default::default() };
    let tenant = client.get(client.tenants().create(spec));
    assert_eq!((tenant.max_gpus, tenant.max_cpu_cores), (Some(0), None));
    let labels = HashMap::from([("team".to_string(), "a".to_string())]);
    let update = |change: v1::TenantChange, clear: &[&str]| v1::UpdateTenantRequest {
        id: "t".to_string(),
        change: Some(change),
        clear: clear.iter().map(ToString::to_string).collect(),
    };
    let change = v1::TenantChange { max_cpu_cores: Some(8), labels: labels.clone(), ..Default::default() };
    let tenant = client.get(client.tenants().update(update(change, &[])));
    assert_eq!((tenant.max_gpus, tenant.max_cpu_cores, tenant.labels), (Some(0), Some(8), labels));
    let tenant = client.get(client.tenants().update(update(v1::TenantChange::default(), &["max_gpus", "labels"])));
    assert_eq!((tenant.max_gpus, tenant.max_cpu_cores, tenant.labels.len()), (None, Some(8), 0));

    let unknown = client.error(client.tenants().update(update(v1::TenantChange::default(), &["max_gpu"])));
    expect(&unknown, Code::InvalidArgument, "malformed");
    assert!(unknown.problem.unwrap().hint.unwrap().contains("max_gpus"));
    let change = v1::TenantChange { max_gpus: Some(1), ..Default::default() };
    let both = client.error(client.tenants().update(update(change, &["max_gpus"])));
    expect(&both, Code::InvalidArgument, "malformed");
}

#[test]
fn texts_of_paths_and_queries_arrive_unchanged() {
    let server = TestServer::new();
    let client = server.grpc();
    let name = "a b&c=d%20é+#?/;";
    client.get(client.jobs().submit(job(name)));
    client.get(client.jobs().submit(job("a b")));
    let named = v1::ListJobsRequest { name: Some(name.to_string()), active: Some(true), ..Default::default() };
    let list = client.get(client.jobs().list(named));
    assert_eq!((list.total, list.jobs[0].name.as_str()), (1, name));
    let label = v1::ListNodesRequest { label: Some("no=such".to_string()), ..Default::default() };
    assert_eq!(client.get(client.nodes().list(label)).total, 0);
}

#[test]
fn events_are_followed_and_resumed_and_end_with_the_server() {
    let server = TestServer::new();
    let client = server.grpc();
    let mut live = client.get(client.watch().events(v1::EventsRequest::default()));
    let id = client.get(client.jobs().submit(job("told"))).job_id;
    let submitted = client.next(&mut live).unwrap().unwrap();
    assert_eq!((submitted.kind.as_str(), submitted.job_id.as_deref()), ("JobSubmitted", Some(id.as_str())));
    let rest = server.get(&format!("/api/v1/jobs/{id}/events"));
    assert_eq!(rest["events"][0]["seq"], submitted.seq);
    assert_eq!(rest["events"][0]["at_ms"], submitted.at_ms);
    let data = submitted.data.unwrap().fields;
    assert!(data["spec"].kind.is_some(), "{data:?}");

    let from = |after: u64| {
        client.get(async { client.watch().events(v1::EventsRequest { after: Some(after), job: None }).await })
    };
    let mut again = from(0);
    let numbers: Vec<u64> = (0..3).map(|_| client.next(&mut again).unwrap().unwrap().seq).collect();
    assert_eq!(numbers, [1, 2, 3], "from the start of the journal");
    let mut rest = from(submitted.seq);
    assert!(client.next(&mut rest).unwrap().unwrap().seq > submitted.seq);
    let one_job = v1::EventsRequest { after: Some(0), job: Some(id.clone()) };
    let mut only = client.get(client.watch().events(one_job));
    assert_eq!(client.next(&mut only).unwrap().unwrap().job_id, Some(id));

    let _watcher = watch_health(&client);
    let started = std::time::Instant::now();
    drop(server);
    assert!(started.elapsed().as_secs() < 20, "the streams delayed the stop");
    let end = std::iter::from_fn(|| client.next(&mut live)).find_map(Result::err).unwrap();
    expect(&end, Code::Unavailable, "unavailable");
}

#[test]
fn streams_end_when_the_token_of_the_caller_is_revoked() {
    let server = server_with_tokens();
    let reply = server.client().post("/api/v1/tokens", &json!({"name": "w", "role": "viewer", "tenant_id": "red"}));
    let token = reply.json();
    let viewer = server.grpc().with_token(token["secret"].as_str().unwrap());
    let member = client_with_role(&server, "member", Some("red"));
    let id = member.get(member.jobs().submit(job("x"))).job_id;
    server.wait_for_state(&id, "running");
    let mut events = viewer.get(viewer.watch().events(v1::EventsRequest::default()));
    let mut log = viewer.get(viewer.jobs().logs(v1::LogsRequest { id, ..Default::default() }));
    let path = format!("/api/v1/tokens/{}", token["id"].as_str().unwrap());
    assert_eq!(server.client().delete(&path).status, 200);
    let events_end = std::iter::from_fn(|| viewer.next(&mut events)).find_map(Result::err).unwrap();
    let log_end = std::iter::from_fn(|| viewer.next(&mut log)).find_map(Result::err).unwrap();
    for end in [events_end, log_end] {
        expect(&end, Code::Unauthenticated, "token-ended");
    }
}

#[test]
fn logs_are_those_of_rest() {
    let server = TestServer::new();
    let client = server.grpc();
    let id = server.submit_sleeper("300ms", 1);
    let mut stream = client.get(client.jobs().logs(v1::LogsRequest { id: id.clone(), ..Default::default() }));
    let (mut text, mut ends) = (String::new(), 0);
    while let Some(event) = client.next(&mut stream) {
        match event.unwrap().event.unwrap() {
            log_event::Event::Piece(piece) => text.push_str(&piece.text),
            log_event::Event::End(piece) => {
                assert!(piece.complete);
                text.push_str(&piece.text);
                ends += 1;
            }
            log_event::Event::Notice(problem) => panic!("{problem:?}"),
        }
    }
    assert_eq!(ends, 1, "the stream ends without an error after the last output");
    let whole = server.get(&format!("/api/v1/jobs/{id}/logs"));
    assert_eq!(whole["text"].as_str(), Some(text.as_str()));
    let read = v1::ReadLogRequest { id: id.clone(), offset: Some(3), rank: Some(0), ..Default::default() };
    let piece = client.get(client.jobs().read_log(read));
    assert_eq!((piece.text.as_str(), piece.complete, piece.bytes), (&text[3..], true, None));
    let streams = Some("0.stdout,0.stderr".to_string());
    let mut both = client.get(client.jobs().logs(v1::LogsRequest { id, streams, ..Default::default() }));
    let ends = std::iter::from_fn(|| client.next(&mut both))
        .filter(|event| matches!(event.as_ref().unwrap().event, Some(log_event::Event::End(_))));
    assert_eq!(ends.count(), 2);
}

#[test]
fn requests_above_the_rate_limit_are_refused() {
    let server = TestServer::with_settings(&[("api.rate_limit_rps", "5")], None);
    let client = server.grpc();
    let call = || client.error_or_ok(async { client.cluster().who_am_i(v1::WhoAmIRequest {}).await });
    let flooded = (0..40).filter_map(|_| call()).next().expect("a refusal");
    expect(&flooded, Code::ResourceExhausted, "rate-limited");
    assert_eq!(flooded.retry_after.as_deref(), Some("1"));
}

#[test]
fn streams_of_rest_and_grpc_count_together() {
    let server = TestServer::without_nodes();
    let client = server.grpc();
    let mut streams: Vec<_> = (0..64).map(|_| server.client().stream("/api/v1/events", &[])).collect();
    let events = || async { client.watch().events(v1::EventsRequest::default()).await };
    expect(&client.error(events()), Code::ResourceExhausted, "too-many-streams");
    streams.pop();
    // The server notices at its next write that a client of REST has gone.
    server.submit(json!({"script": "x"}));
    server.wait_until("a free stream", |_| client.error_or_ok(events()).is_none());
}

#[test]
fn what_is_no_call_of_a_method_is_refused() {
    let server = TestServer::new();
    let client = server.grpc();
    let oversized = v1::SubmitJob { script: Some("x".repeat(2 << 20)), ..job("x") };
    assert_eq!(client.error(client.jobs().submit(oversized)).code, Code::OutOfRange);
    let large = v1::SubmitJob { script: Some("x".repeat(300 << 10)), ..job("x") };
    expect(&client.error(client.jobs().submit(large)), Code::ResourceExhausted, "too-large");

    let mut grpc = tonic::client::Grpc::new(client.channel());
    let unknown = client.error(async {
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        grpc.unary(tonic::Request::new(()), "/muster.v1.JobService/Nonsense".parse().unwrap(), codec).await
    });
    assert_eq!(unknown.code, Code::Unimplemented, "{unknown:?}");
    let link = client.error(async {
        let mut link = v1::agent_link_client::AgentLinkClient::new(client.channel());
        link.enrol(v1::EnrolRequest::default()).await
    });
    assert_eq!(link.code, Code::Unimplemented, "the agent link is on its own port");

    // A web page can send this without asking first.
    let by_page = crate::client::Client::new(&server.grpc_url(), None);
    let headers = [("Content-Type", "text/plain"), ("Origin", "http://evil.example")];
    let reply = by_page.send_unchecked("POST", "/muster.v1.JobService/Submit", &headers, b"\0\0\0\0\0");
    assert_eq!(reply.status, 415, "{}", reply.text);
    let foreign = client.with("origin", "http://evil.example");
    expect(&foreign.error(foreign.jobs().submit(job("x"))), Code::PermissionDenied, "foreign-origin");
    assert_eq!(server.get("/api/v1/jobs")["total"], 0);
}

#[test]
fn a_caller_without_a_token_is_refused_before_its_message_is_read() {
    let server = TestServer::with_settings(&[("auth.mode", "tokens")], Some(TWO_NODES));
    let oversized = v1::SubmitJob { script: Some("x".repeat(2 << 20)), ..job("x") };
    let anonymous = server.grpc().anonymous();
    let refused = anonymous.error(anonymous.jobs().submit(oversized.clone()));
    expect(&refused, Code::Unauthenticated, "unauthorized");
    let client = server.grpc();
    assert_eq!(client.error(client.jobs().submit(oversized)).code, Code::OutOfRange);
}

#[test]
fn a_standby_names_the_leader_and_is_not_serving() {
    let mut leader = TestServer::new();
    let standby = leader.second_server();
    let (of_leader, of_standby) = (leader.grpc(), standby.grpc());
    let refused = of_standby.error(of_standby.jobs().submit(job("x")));
    expect(&refused, Code::Unavailable, "unavailable");
    assert!(refused.message.starts_with("this server is a standby; the leader is"), "{}", refused.message);
    assert!(refused.problem.unwrap().hint.is_some());
    assert_eq!(of_standby.get(of_standby.jobs().list(v1::ListJobsRequest::default())).total, 0, "tables are readable");

    for name in ["", "muster.v1.JobService", "muster.v1.WatchService"] {
        leader.wait_until("health of the leader", |_| health(&of_leader, name) == ServingStatus::Serving);
        assert_eq!(health(&of_standby, name), ServingStatus::NotServing, "{name}");
    }
    let unknown = HealthCheckRequest { service: "muster.v1.AgentLink".to_string() };
    let unknown = of_leader.error(async { HealthClient::new(of_leader.channel()).check(unknown).await });
    assert_eq!(unknown.code, Code::NotFound);
    let mut watched = watch_health(&of_standby);
    let not_serving = of_standby.next(&mut watched).unwrap().unwrap();
    assert_eq!(not_serving.status(), ServingStatus::NotServing);
    leader.stop();
    let serving: HealthCheckResponse = of_standby.next(&mut watched).unwrap().unwrap();
    assert_eq!(serving.status(), ServingStatus::Serving, "the standby has taken over");
    of_standby.get(of_standby.jobs().submit(job("x")));
}

fn watch_health(client: &GrpcClient) -> Streaming<HealthCheckResponse> {
    client.get(async { HealthClient::new(client.channel()).watch(HealthCheckRequest::default()).await })
}

fn health(client: &GrpcClient, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_string() };
    client.get(async { HealthClient::new(client.channel()).check(request).await }).status()
}

#[test]
fn reflection_lists_the_services_and_their_definitions() {
    let server = TestServer::without_nodes();
    let client = server.grpc().anonymous();
    let ask = |request: MessageRequest| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let requests = tokio_stream::once(request);
        let mut reflection = ServerReflectionClient::new(client.channel());
        let mut answers = client.get(reflection.server_reflection_info(requests));
        client.next(&mut answers).unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(listed) = ask(MessageRequest::ListServices(String::new())) else {
        panic!("not a list")
    };
    let mut names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
    names.sort();
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "muster.v1.ClusterService",
        "muster.v1.GpuService",
        "muster.v1.JobService",
        "muster.v1.NodeService",
        "muster.v1.TenantService",
        "muster.v1.WatchService",
    ];
    assert_eq!(names, expected);
    for symbol in ["muster.v1.JobService", "muster.v1.SubmitJob", "google.protobuf.Struct", "grpc.health.v1.Health"] {
        let answer = ask(MessageRequest::FileContainingSymbol(symbol.to_string()));
        assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{symbol}: {answer:?}");
    }
}

#[test]
fn with_tls_the_certificate_is_that_of_https() {
    let settings = [("auth.mode", "tokens"), ("api.enable_tls", "true")];
    let server = TestServer::with_settings(&settings, None);
    let trusted = tls::client_config_trusting(&tls::ca_path(server.data_dir())).unwrap();
    let address = server.grpc_url().trim_start_matches("https://").to_string();
    assert!(server.grpc_url().starts_with("https://"));
    let client = GrpcClient::over_tls(&address, trusted, server.client().token());
    assert_eq!(client.get(client.cluster().who_am_i(v1::WhoAmIRequest {})).role, "admin");
    let anonymous = client.anonymous();
    let refused = anonymous.error(anonymous.cluster().status(v1::StatusRequest {}));
    expect(&refused, Code::Unauthenticated, "unauthorized");

    let plain = GrpcClient::new(&format!("http://{address}"), server.client().token());
    let refused = plain.error(plain.cluster().status(v1::StatusRequest {}));
    assert!(refused.problem.is_none() && refused.code != Code::Ok, "{refused:?}");
}

fn config(settings: &[(&'static str, &str)]) -> Result<Config, String> {
    let mut flags = RawConfig::default();
    for (key, value) in settings {
        flags.flag(key, "test", value);
    }
    Config::load(flags, [], None).map_err(|error| error.to_string())
}

#[test]
fn beyond_loopback_there_is_no_plaintext() {
    let refused = config(&[("listen", "0.0.0.0:0")]).unwrap_err();
    assert!(refused.contains("auth.mode") || refused.contains("enable_tls"), "{refused}");
    let refused = config(&[("listen", "0.0.0.0:0"), ("auth.mode", "tokens")]).unwrap_err();
    assert!(refused.contains("enable_tls"), "{refused}");
}

#[test]
fn a_port_in_use_is_refused_with_the_key_to_set() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data_dir = std::env::temp_dir().join(format!("muster-grpc-port-{}", std::process::id()));
    let start = |port: &str| {
        let folder = data_dir.display().to_string();
        let settings = [("listen", "127.0.0.1:0"), ("data_dir", folder.as_str()), ("api.grpc_port", port)];
        server::start(&config(&settings).unwrap(), InProcessNodes::None, Adapters::default())
    };
    let refused = start(&port).err().expect("the port is in use").to_string();
    assert!(refused.contains(&port) && refused.contains("api.grpc_port"), "{refused}");

    let off = start("off").unwrap();
    assert_eq!(off.grpc_url(), None);
    off.stop().unwrap();
    // With the default port in use or not, servers for trying out start beside each other.
    let first = start("auto").unwrap();
    let folder = data_dir.join("second").display().to_string();
    let settings = [("listen", "127.0.0.1:0"), ("data_dir", folder.as_str())];
    let second = server::start(&config(&settings).unwrap(), InProcessNodes::None, Adapters::default()).unwrap();
    assert_ne!(first.grpc_url().unwrap(), second.grpc_url().unwrap());
    first.stop().unwrap();
    second.stop().unwrap();
    std::fs::remove_dir_all(&data_dir).unwrap();
}

#[test]
fn the_port_is_a_number_or_a_word() {
    for wrong in ["65536", "-1", "yes", "50051x"] {
        let refused = config(&[("api.grpc_port", wrong)]).unwrap_err();
        assert!(refused.contains("`auto`, `off`, or a port"), "{refused}");
    }
}

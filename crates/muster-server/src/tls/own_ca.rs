//! A CA and a server certificate of our own, for sites that bring none.
//!
//! Clients trust `tls/ca.pem`, which stays the same for ten years, so the server's certificate may be made anew
//! whenever that is needed: at a start with less than half of its life left, or under other names. A server
//! that is restarted once a year never shows an expired one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{TlsError, unreadable};
use crate::identity::write_private;

const CA_DAYS: i32 = 3_650;
/// Under the 825 days that Apple's systems allow a certificate of a private CA.
const SERVER_DAYS: i32 = 800;

/// What clients have to trust.
pub fn ca_path(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("ca.pem")
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

/// This day in UTC. Certificates are dated in whole days, with one to spare for clocks that differ.
pub(super) fn today() -> Date {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// The files of a certificate that covers `names` and will live for a while, made where that is needed.
pub(super) fn certificate(
    data_dir: &Path,
    names: &[String],
    today: Date,
) -> Result<(PathBuf, PathBuf), TlsError> {
    let (certificate, key) = (folder(data_dir).join("server.pem"), folder(data_dir).join("server.key"));
    let names = all_names(names);
    let good = Label { names: names.clone(), renew_after: days_after(today, SERVER_DAYS / 2) };
    let kept = std::fs::read_to_string(&certificate).ok().and_then(|text| Label::read(&text));
    let is_whole = key.exists() && ca_path(data_dir).exists();
    let is_good = is_whole && kept.is_some_and(|kept| kept.names == names && kept.renew_after > today);
    if !is_good {
        issue(data_dir, &good, today, (&certificate, &key))?;
    }
    Ok((certificate, key))
}

/// What we wrote above a certificate, to know later whether it still serves without having to parse it. Text
/// before the first block is legal in PEM.
struct Label {
    names: BTreeSet<String>,
    renew_after: Date,
}

impl Label {
    fn text(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        format!("renew-after: {}\nnames: {}\n", self.renew_after, names.join(" "))
    }

    fn read(text: &str) -> Option<Label> {
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let renew_after = line("renew-after: ")?.parse().ok()?;
        let names = line("names: ")?.split_whitespace().map(str::to_string).collect();
        Some(Label { names, renew_after })
    }
}

fn all_names(names: &[String]) -> BTreeSet<String> {
    let usable = names.iter().filter(|name| !name.is_empty() && !name.contains(char::is_whitespace)).cloned();
    ["localhost", "127.0.0.1", "::1"].map(str::to_string).into_iter().chain(usable).collect()
}

fn issue(data_dir: &Path, label: &Label, today: Date, files: (&Path, &Path)) -> Result<(), TlsError> {
    let unmade = |source| TlsError::Unmade { path: folder(data_dir), source };
    let issuer = issuer(data_dir, today)?;
    let mut params =
        CertificateParams::new(label.names.iter().cloned().collect::<Vec<_>>()).map_err(unmade)?;
    params.distinguished_name.push(DnType::CommonName, "muster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    lives(&mut params, today, SERVER_DAYS);
    let key = KeyPair::generate().map_err(unmade)?;
    let certificate = params.signed_by(&key, &issuer).map_err(unmade)?;
    // The key first: a certificate without its key would look good at the next start.
    write_private(files.1, key.serialize_pem().as_bytes())?;
    write_private(files.0, format!("{}{}", label.text(), certificate.pem()).as_bytes())?;
    Ok(())
}

/// The CA, made at the first call. It is described by code and told apart by its key, so the key is all that
/// has to be read again.
fn issuer(data_dir: &Path, today: Date) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let unmade = |source| TlsError::Unmade { path: folder(data_dir), source };
    let (path, key_path) = (ca_path(data_dir), folder(data_dir).join("ca.key"));
    if path.exists() {
        let pem = std::fs::read_to_string(&key_path).map_err(|error| unreadable(&key_path, error))?;
        let key = KeyPair::from_pem(&pem).map_err(|error| unreadable(&key_path, error))?;
        return Ok(Issuer::new(ca_params(today), key));
    }
    let key = KeyPair::generate().map_err(unmade)?;
    let params = ca_params(today);
    let certificate = params.self_signed(&key).map_err(unmade)?;
    write_private(&key_path, key.serialize_pem().as_bytes())?;
    write_private(&path, certificate.pem().as_bytes())?;
    Ok(Issuer::new(params, key))
}

fn ca_params(today: Date) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "muster CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    lives(&mut params, today, CA_DAYS);
    params
}

fn lives(params: &mut CertificateParams, today: Date, days: i32) {
    let moment = |date: Date| {
        // Months and days of a calendar date fit.
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = moment(days_after(today, -1));
    params.not_after = moment(days_after(today, days));
}

fn days_after(date: Date, days: i32) -> Date {
    date.saturating_add(days.days())
}

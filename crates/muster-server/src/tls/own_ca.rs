//! The server's own CA and certificate, for sites that supply no certificate.
//!
//! Clients trust `tls/ca.pem`, which stays the same for ten years, so the server's certificate can be issued again whenever
//! needed: at a start with less than half of its lifetime left, or for other names. A server that restarts once a year
//! never uses an expired certificate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::{TlsError, unreadable};
use crate::identity::write_private;

const CA_VALID_DAYS: i32 = 3_650;
/// Under the 825 days that Apple's systems allow a certificate of a private CA.
pub(crate) const SERVER_CERTIFICATE_VALID_DAYS: i32 = 800;

/// Path of the CA certificate, which clients have to trust.
pub fn ca_path(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("ca.pem")
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

/// The current day in UTC. Certificates are dated in whole days, with a day of margin for clocks that differ.
pub(crate) fn today() -> Date {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// Certificate and key files that cover `names`; issued again unless the existing ones are valid for long enough.
pub(super) fn ensure_certificate(
    data_dir: &Path,
    names: &[String],
    today: Date,
) -> Result<(PathBuf, PathBuf), TlsError> {
    let (certificate, key) = (folder(data_dir).join("server.pem"), folder(data_dir).join("server.key"));
    let names = all_names(names);
    let existing = std::fs::read_to_string(&certificate).ok().and_then(|text| CertificateHeader::read(&text));
    let is_complete = key.exists() && ca_path(data_dir).exists();
    let is_valid = is_complete && existing.is_some_and(|header| header.names == names && header.renew_after > today);
    if !is_valid {
        let renew_after = days_after(today, SERVER_CERTIFICATE_VALID_DAYS / 2);
        issue(data_dir, &CertificateHeader { names, renew_after }, today, (&certificate, &key))?;
    }
    Ok((certificate, key))
}

/// Text above a certificate, which tells at the next start whether the certificate is still valid without parsing it.
/// Text before the first block is legal in PEM.
struct CertificateHeader {
    names: BTreeSet<String>,
    renew_after: Date,
}

impl CertificateHeader {
    fn text(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        format!("renew-after: {}\nnames: {}\n", self.renew_after, names.join(" "))
    }

    fn read(text: &str) -> Option<CertificateHeader> {
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let renew_after = line("renew-after: ")?.parse().ok()?;
        let names = line("names: ")?.split_whitespace().map(str::to_string).collect();
        Some(CertificateHeader { names, renew_after })
    }
}

fn all_names(names: &[String]) -> BTreeSet<String> {
    let usable = names.iter().filter(|name| !name.is_empty() && !name.contains(char::is_whitespace)).cloned();
    ["localhost", "127.0.0.1", "::1"].map(str::to_string).into_iter().chain(usable).collect()
}

fn issue(data_dir: &Path, header: &CertificateHeader, today: Date, files: (&Path, &Path)) -> Result<(), TlsError> {
    let not_generated = |source| TlsError::NotGenerated { path: folder(data_dir), source };
    let issuer = issuer(data_dir, today)?;
    let mut params = CertificateParams::new(header.names.iter().cloned().collect::<Vec<_>>()).map_err(not_generated)?;
    params.distinguished_name.push(DnType::CommonName, "muster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, today, SERVER_CERTIFICATE_VALID_DAYS);
    let key = KeyPair::generate().map_err(not_generated)?;
    let certificate = params.signed_by(&key, &issuer).map_err(not_generated)?;
    // The key first: at the next start a new certificate with an old key would look valid.
    write_private(files.1, key.serialize_pem().as_bytes())?;
    write_private(files.0, format!("{}{}", header.text(), certificate.pem()).as_bytes())?;
    Ok(())
}

/// The CA, generated at the first call. Its parameters are constant and its key identifies it, so only the key is read
/// back.
pub(crate) fn issuer(data_dir: &Path, today: Date) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let not_generated = |source| TlsError::NotGenerated { path: folder(data_dir), source };
    let (path, key_path) = (ca_path(data_dir), folder(data_dir).join("ca.key"));
    if path.exists() {
        let pem = std::fs::read_to_string(&key_path).map_err(|error| unreadable(&key_path, error))?;
        let key = KeyPair::from_pem(&pem).map_err(|error| unreadable(&key_path, error))?;
        return Ok(Issuer::new(ca_params(today), key));
    }
    let key = KeyPair::generate().map_err(not_generated)?;
    let params = ca_params(today);
    let certificate = params.self_signed(&key).map_err(not_generated)?;
    write_private(&key_path, key.serialize_pem().as_bytes())?;
    write_private(&path, certificate.pem().as_bytes())?;
    Ok(Issuer::new(params, key))
}

fn ca_params(today: Date) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "muster CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, today, CA_VALID_DAYS);
    params
}

pub(crate) fn set_validity(params: &mut CertificateParams, today: Date, days: i32) {
    let midnight = |date: Date| {
        // Months and days of a calendar date fit into a byte.
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = midnight(days_after(today, -1));
    params.not_after = midnight(days_after(today, days));
}

fn days_after(date: Date, days: i32) -> Date {
    date.saturating_add(days.days())
}

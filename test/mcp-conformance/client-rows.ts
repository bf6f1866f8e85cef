/** Scenarios of the suite for clients, run against `mcp://`. */
import type { ConformanceRow } from "./row.ts";

const stateless = ["2026-07-28"];
const sessions = ["2025-06-18", "2025-11-25"];
const newest = ["2025-11-25", ...stateless];
const all = [...sessions, ...stateless];

const interactive =
  "Services are configured with the addresses of their authorization server and a client that was registered there; nothing is discovered, registered or asked of a browser while a tool runs.";
const bySecret =
  "Machine clients prove themselves by a secret; signed assertions and proofs of possession are not offered.";
const noSkills = "Skills are resources; servers are asked for tools alone.";

export const clientRows: readonly ConformanceRow[] = [
  { scenario: "initialize", revisions: sessions },
  { scenario: "tools_call", revisions: all },
  { scenario: "elicitation-sep1034-client-defaults", revisions: ["2025-11-25"] },
  { scenario: "sse-retry", revisions: ["2025-11-25"] },
  { scenario: "request-metadata", revisions: stateless },
  { scenario: "auth/metadata-default", revisions: newest, notApplicable: interactive },
  { scenario: "auth/metadata-var1", revisions: newest, notApplicable: interactive },
  { scenario: "auth/metadata-var2", revisions: newest, notApplicable: interactive },
  { scenario: "auth/metadata-var3", revisions: newest, notApplicable: interactive },
  { scenario: "auth/basic-cimd", revisions: newest, notApplicable: interactive },
  { scenario: "auth/scope-from-www-authenticate", revisions: newest, notApplicable: interactive },
  { scenario: "auth/scope-from-scopes-supported", revisions: newest, notApplicable: interactive },
  { scenario: "auth/scope-omitted-when-undefined", revisions: newest, notApplicable: interactive },
  { scenario: "auth/scope-step-up", revisions: newest, notApplicable: interactive },
  { scenario: "auth/scope-retry-limit", revisions: newest, notApplicable: interactive },
  { scenario: "auth/token-endpoint-auth-basic", revisions: all, notApplicable: interactive },
  { scenario: "auth/token-endpoint-auth-post", revisions: all, notApplicable: interactive },
  { scenario: "auth/token-endpoint-auth-none", revisions: all, notApplicable: interactive },
  { scenario: "auth/pre-registration", revisions: newest, notApplicable: interactive },
  { scenario: "auth/2025-03-26-oauth-metadata-backcompat", revisions: ["2025-03-26"], notApplicable: interactive },
  { scenario: "auth/2025-03-26-oauth-endpoint-fallback", revisions: ["2025-03-26"], notApplicable: interactive },
  { scenario: "auth/resource-mismatch", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/offline-access-scope", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/offline-access-not-supported", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/authorization-server-migration", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-supported", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-not-advertised", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-supported-missing", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-wrong-issuer", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-unexpected", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/iss-normalized", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/metadata-issuer-mismatch", revisions: stateless, notApplicable: interactive },
  { scenario: "auth/client-credentials-jwt", revisions: stateless, notApplicable: bySecret },
  { scenario: "auth/client-credentials-basic", revisions: stateless },
  { scenario: "auth/enterprise-managed-authorization", revisions: stateless, notApplicable: bySecret },
  { scenario: "auth/dpop", revisions: stateless, notApplicable: bySecret },
  { scenario: "auth/dpop-nonce", revisions: stateless, notApplicable: bySecret },
  { scenario: "auth/wif-jwt-bearer", revisions: stateless, notApplicable: bySecret },
  { scenario: "sep-2322-client-request-state", revisions: stateless },
  { scenario: "http-standard-headers", revisions: stateless },
  { scenario: "http-custom-headers", revisions: stateless },
  { scenario: "http-invalid-tool-headers", revisions: stateless },
  { scenario: "json-schema-ref-no-deref", revisions: stateless },
  { scenario: "json-schema-2020-12-preservation", revisions: newest },
  { scenario: "sep-2640-client-no-prefetch", revisions: stateless, notApplicable: noSkills },
  { scenario: "sep-2640-client-verify-digest", revisions: stateless, notApplicable: noSkills },
  { scenario: "sep-2640-client-verify-size", revisions: stateless, notApplicable: noSkills },
  { scenario: "sep-2640-client-verify-frontmatter", revisions: stateless, notApplicable: noSkills },
];

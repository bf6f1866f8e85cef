/**
 * Why a request did not come through, in words for callers and models. Only host names (for a blind
 * tool not even these: "the host of" the tool) and error codes are told: paths and queries may hold
 * arguments or keys, addresses are the operator's affair.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";

/** The other side of a request. */
export interface Peer {
  /** What its URL names, for whoever may learn it. */
  readonly host: string;
  /** For whoever must not learn the host (BLIND-6): the tool, or what else is reached there. */
  readonly name?: string | undefined;
}

/** Thrown where a connection is refused by policy; becomes `egress_denied` for the request that wanted it. */
export class EgressRefusal extends Error {
  override readonly name = "EgressRefusal";
  /** The transport reads it: an unknown code fails the requests that wait for this connection. */
  readonly code = "EGRESS_REFUSED";
  readonly reason: string;

  constructor(reason: string) {
    super(`refused: ${reason}`);
    this.reason = reason;
  }
}

const reasonTexts: Readonly<Record<string, string>> = {
  invalid_url: "it is not a valid URL",
  redirect_invalid: "it redirects to what is not a valid URL",
  scheme_forbidden: "only http and https are allowed",
  userinfo_forbidden: "user name and password may not stand in a URL; they belong into a credential",
  port_forbidden: "this port is not allowed",
  metadata: "it belongs to a metadata service, which is never reached",
  link_local: "it is a link-local address, which is never reached",
  denied_endpoint: "the operator has closed this endpoint",
  dns_no_answer: "its name has no address",
  downgrade: "a redirect may not lead from https to http",
  secret_redirected: "a redirect may not take a body that holds a credential to another host",
};

/** Reasons that lie in how the URL is written, whatever host it names. */
const aboutUrls: ReadonlySet<string> = new Set(["invalid_url", "scheme_forbidden", "userinfo_forbidden"]);

/** A tool has no address, its host has: the name alone would read as if the tool were one. */
function subjectOf({ host, name }: Peer, part: "host" | "URL" = "host"): string {
  return name === undefined ? `'${host.slice(0, 200)}'` : `The ${part} of '${name.slice(0, 200)}'`;
}

export function toEgressDenied(peer: Peer, reason: string): GatewayError {
  const subject = subjectOf(peer, aboutUrls.has(reason) ? "URL" : "host");
  const text =
    reasonTexts[reason] ??
    `it is or resolves to a ${reason.replaceAll("_", " ")} address; an operator can open such ranges with TOOLYARD_EGRESS_ALLOW`;
  return withDelivery(
    new GatewayError("egress_denied", `${subject} may not be reached: ${text}.`, { extra: { reason } }),
    "not_sent",
  );
}

/** What the transport failed with, as the error for the one who asked. */
export function toUnreachable(error: Error, options: { readonly peer: Peer; readonly isSent: boolean }): GatewayError {
  const { peer, isSent } = options;
  if (error instanceof EgressRefusal) return toEgressDenied(peer, error.reason);
  const code = codeOf(error);
  if (code === "UND_ERR_INVALID_ARG") {
    return withDelivery(
      new GatewayError("invalid_request", "The request cannot be sent: its method, path or a header is malformed.", {
        cause: error,
      }),
      "not_sent",
    );
  }
  const text = isSent ? afterSending(code) : whyNotConnected(error);
  return withDelivery(
    new GatewayError("tool_unreachable", `${subjectOf(peer)} ${text}.`, { cause: error }),
    isSent ? "uncertain" : "not_sent",
  );
}

/** What is wrong with the certificate that a server has shown, by Node's codes. */
const certificateTexts: readonly (readonly [codes: RegExp, said: string])[] = [
  [
    /SELF_SIGNED|ISSUER|VERIFY_LEAF/,
    "has a certificate of an authority that is not trusted (…); where a service's configuration takes 'tls', its 'ca' names another",
  ],
  [/EXPIRED|NOT_YET_VALID/, "has a certificate that is not valid at this time (…)"],
  [/CERT|TLS|SSL|SIGNATURE/, "has no certificate that is trusted for this name (…)"],
];

/**
 * What a peer did instead of being connected to, as what follows its name.
 * @param asked the name that its certificate has to be for, where errors may tell it
 */
export function whyNotConnected(error: Error, asked?: string): string {
  const code = codeOf(error);
  if (code === "ENOTFOUND" || code === "EAI_AGAIN" || code === "EAI_NODATA") return `cannot be resolved (${code})`;
  if (code === "ECONNREFUSED") return "refused the connection";
  if (code === "UND_ERR_CONNECT_TIMEOUT" || code === "ETIMEDOUT") return "could not be connected to in time";
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG/.test(code)) return `does not speak TLS there (${code})`;
  if (/_ALERT_/.test(code)) return `refused the TLS that was offered, or the certificate shown to it (${code})`;
  if (code.includes("ALTNAME"))
    return `has a certificate for other names than ${asked === undefined ? "this one" : `'${asked}'`} (${code})`;
  for (const [codes, said] of certificateTexts) if (codes.test(code)) return said.replace("…", code);
  return `could not be connected to (${code})`;
}

function afterSending(code: string): string {
  if (/^HPE_|^HTTPParserError$|^UND_ERR_HEADERS_OVERFLOW$/.test(code))
    return `answered with something that is not HTTP/1.1 (${code})`;
  return `closed the connection before its answer was complete (${code})`;
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

/** The caller's signal has fired: its reason, as an error of its own for this request. */
export function toGivenUp(reason: unknown): GatewayError {
  // A copy: one signal may end several requests, and each has its own fate.
  if (reason instanceof GatewayError) return new GatewayError(reason.code, reason.message, reason.details);
  if (reason instanceof Error && reason.name === "TimeoutError") {
    return new GatewayError("tool_timeout", "The time for this call was over before the back end answered.");
  }
  return new GatewayError("call_cancelled", "The call was cancelled before the back end answered.");
}

/** The time of a request was over, or its answer stopped coming. */
export function toSlowAnswer({ host, name = host }: Peer, missing: string): GatewayError {
  return new GatewayError("tool_timeout", `'${name}' ${missing}.`);
}

export function toTooManyRedirects({ host, name = host }: Peer): GatewayError {
  const message = `'${name}' redirected more often than is followed.`;
  return withDelivery(new GatewayError("tool_failed", message), "answered");
}

/** Which header names and values a definition, an argument or a credential may bring into a request. */

/** Belong to the connection or to the door, or follow from `content_type` and the body. */
const transportHeaders = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "traceparent",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** RFC 9110 section 5.1: a token. */
export function isHeaderName(name: string): boolean {
  return /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/.test(name);
}

/** Headers that nobody but the gateway sets. */
export function isTransportHeader(name: string): boolean {
  return transportHeaders.has(name.toLowerCase());
}

/** Visible ASCII, spaces and tabs: what every server reads alike, and no line break. */
export function isHeaderValue(value: string): boolean {
  return /^[\t\u0020-\u007e]*$/.test(value);
}

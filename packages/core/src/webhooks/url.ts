/** Where webhooks may be sent: over TLS, and without it only inside; the door decides about each address. */
import ipaddr from "ipaddr.js";
import { GatewayError } from "../errors/gateway-error.ts";

/** @throws GatewayError `invalid_request` with `param` */
export function requireWebhookUrl(url: string): void {
  const parsed = URL.parse(url);
  if (parsed?.protocol === "https:" || (parsed?.protocol === "http:" && isInside(parsed))) return;
  throw new GatewayError(
    "invalid_request",
    "'url' must be an https URL; http is for 'localhost' and private addresses only, where TOOLYARD_EGRESS_ALLOW opens them.",
    { param: "url" },
  );
}

function isInside({ hostname }: URL): boolean {
  if (hostname === "localhost") return true;
  const host = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  return ipaddr.isValid(host) && ["loopback", "private", "uniqueLocal"].includes(ipaddr.parse(host).range());
}

/**
 * An optional host name: `TOOLYARD_DOMAIN` for HTTP and `ws.` before it, since API Gateway serves a
 * WebSocket API and a REST API under different names. DNS and certificates are made in Route 53 and
 * ACM, unless a certificate is given: then DNS is somebody else's.
 */
import { certificateArn, domain } from "./settings.ts";

type Domain = { readonly name: string } | { readonly name: string; readonly dns: false; readonly cert: string };

function named(name: string): Domain {
  return certificateArn === undefined ? { name } : { name, dns: false, cert: certificateArn };
}

export const restDomain: Domain | undefined = domain === undefined ? undefined : named(domain);
export const realtimeDomain: Domain | undefined = domain === undefined ? undefined : named(`ws.${domain}`);

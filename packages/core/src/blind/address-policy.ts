/**
 * Which hosts and addresses tools may reach (design "Blind, and closed by default"). Pure: looks at
 * names and addresses, resolves nothing. Public unicast is allowed; what an operator lists is allowed
 * besides; the metadata services of clouds never are, whatever an operator lists.
 */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import { GatewayError } from "../errors/gateway-error.ts";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Cidr = readonly [base: Address, bits: number];

export interface AddressPolicyOptions {
  /** CIDRs that may be reached although they are not public. */
  readonly allowCidrs: readonly string[];
  /** Ports that may be reached; absent: every port. */
  readonly allowedPorts?: readonly number[];
  /** `address:port` pairs that are never reached, for example the runtime API of the function itself. */
  readonly deniedEndpoints?: readonly string[];
}

/** Each answers why not, or `undefined` where nothing speaks against it. */
export interface AddressPolicy {
  refuseName(host: string): string | undefined;
  refusePort(port: number): string | undefined;
  refuseAddress(address: string, port: number): string | undefined;
}

/** Addresses that answer with credentials of the machine; no operator setting opens them. */
const metadataRanges = parseTable([
  // AWS, Huawei, GCP, Azure, ECS, EKS and Tencent all keep theirs in the link-local block.
  ["169.254.0.0/16", "metadata"],
  ["fe80::/10", "link_local"],
  ["100.100.100.200/32", "metadata"],
  ["168.63.129.16/32", "metadata"],
  ["192.0.0.192/32", "metadata"],
  ["fd00:ec2::/32", "metadata"],
  ["fd20:ce::/32", "metadata"],
  ["fd00:c1::a9fe:a9fe/128", "metadata"],
]);

/** Everything else that is not public unicast, with the reason shown to people. */
const refusedRanges = parseTable([
  ["0.0.0.0/8", "this_network"],
  ["10.0.0.0/8", "private"],
  ["100.64.0.0/10", "carrier_nat"],
  ["127.0.0.0/8", "loopback"],
  ["172.16.0.0/12", "private"],
  ["192.0.0.0/24", "reserved"],
  ["192.0.2.0/24", "documentation"],
  ["192.31.196.0/24", "reserved"],
  ["192.52.193.0/24", "reserved"],
  ["192.88.99.0/24", "reserved"],
  ["192.168.0.0/16", "private"],
  ["192.175.48.0/24", "reserved"],
  ["198.18.0.0/15", "benchmarking"],
  ["198.51.100.0/24", "documentation"],
  ["203.0.113.0/24", "documentation"],
  ["224.0.0.0/4", "multicast"],
  ["240.0.0.0/4", "reserved"],
  ["::1/128", "loopback"],
  ["::/128", "unspecified"],
  ["::/96", "ipv4_compatible"],
  ["::ffff:0:0/96", "ipv4_mapped"],
  ["::ffff:0:0:0/96", "ipv4_translated"],
  ["64:ff9b::/96", "nat64"],
  ["64:ff9b:1::/48", "nat64"],
  ["fc00::/7", "private"],
  ["fec0::/10", "private"],
  ["ff00::/8", "multicast"],
  ["2001::/23", "reserved"],
  ["2001:db8::/32", "documentation"],
  ["2002::/16", "6to4"],
  ["2620:4f:8000::/48", "reserved"],
  ["3fff::/20", "documentation"],
]);

/** Of IPv6, only this block is public unicast; the table above takes the exceptions out of it. */
const globalUnicast = parseCidr("2000::/3");

/** IPv6 blocks that carry an IPv4 address, and where in the 16 bytes it stands. */
const carriers: readonly { readonly cidr: Cidr; readonly at: number; readonly inverted?: boolean }[] = [
  { cidr: parseCidr("::/96"), at: 12 },
  { cidr: parseCidr("::ffff:0:0/96"), at: 12 },
  { cidr: parseCidr("::ffff:0:0:0/96"), at: 12 },
  { cidr: parseCidr("64:ff9b::/96"), at: 12 },
  { cidr: parseCidr("64:ff9b:1::/48"), at: 12 },
  { cidr: parseCidr("2002::/16"), at: 2 },
  { cidr: parseCidr("2001::/32"), at: 12, inverted: true },
];
const mappedBlock = parseCidr("::ffff:0:0/96");

/** Names of metadata services; never reached. */
const metadataNames = new Set([
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "instance-data",
  "instance-data.ec2.internal",
  "metadata.tencentyun.com",
]);

/** Names that only mean something inside; an operator who lists private CIDRs leaves them to the address check. */
const insideNames = new Set([
  "localhost",
  "kubernetes",
  "kubernetes.default",
  "kubernetes.default.svc",
  "kubernetes.default.svc.cluster.local",
  "host.docker.internal",
  "gateway.docker.internal",
]);
const insideSuffixes = [
  ".localhost",
  ".local",
  ".internal",
  ".localdomain",
  ".home.arpa",
  ".cluster.local",
  ".svc",
  ".onion",
];

/** @throws GatewayError `invalid_request` naming a CIDR or an endpoint that cannot be read */
export function createAddressPolicy(options: AddressPolicyOptions): AddressPolicy {
  const allowed = options.allowCidrs.map(readAllowedCidr);
  const denied = new Set((options.deniedEndpoints ?? []).map(readEndpoint));
  const { allowedPorts } = options;
  return {
    refuseName(host) {
      const name = host.toLowerCase();
      if (metadataNames.has(name)) return "metadata";
      if (allowed.length > 0) return undefined;
      return insideNames.has(name) || insideSuffixes.some((suffix) => name.endsWith(suffix))
        ? "blocked_hostname"
        : undefined;
    },
    refusePort(port) {
      return allowedPorts === undefined || allowedPorts.includes(port) ? undefined : "port_forbidden";
    },
    refuseAddress(text, port) {
      // Strict dotted or colon form only: "127.1" and its kin are for URL parsers, not for resolvers.
      if (isIP(text) === 0) return "not_an_address";
      const address = ipaddr.parse(text);
      const carried = carriedIPv4(address);
      const never = reasonIn(metadataRanges, address) ?? (carried && reasonIn(metadataRanges, carried));
      if (never !== undefined) return never;
      const plain = matches(address, mappedBlock) && carried !== undefined ? carried : address;
      if (denied.has(`${plain.toString()}:${port}`)) return "denied_endpoint";
      if (allowed.some((cidr) => matches(address, cidr) || matches(plain, cidr))) return undefined;
      const reason = reasonIn(refusedRanges, address);
      if (reason !== undefined) return reason;
      return address.kind() === "ipv6" && !matches(address, globalUnicast) ? "outside_global_unicast" : undefined;
    },
  };
}

/** Are these two spellings of one address? */
export function isSameAddress(left: string, right: string): boolean {
  return (
    isIP(left) !== 0 &&
    isIP(right) !== 0 &&
    ipaddr.process(left).toNormalizedString() === ipaddr.process(right).toNormalizedString()
  );
}

function carriedIPv4(address: Address): ipaddr.IPv4 | undefined {
  const carrier = carriers.find(({ cidr }) => matches(address, cidr));
  if (carrier === undefined) return undefined;
  const bytes = address.toByteArray().slice(carrier.at, carrier.at + 4);
  return new ipaddr.IPv4(carrier.inverted === true ? bytes.map((byte) => byte ^ 0xff) : bytes);
}

function reasonIn(table: readonly (readonly [Cidr, string])[], address: Address): string | undefined {
  return table.find(([cidr]) => matches(address, cidr))?.[1];
}

function matches(address: Address, [base, bits]: Cidr): boolean {
  return address.kind() === base.kind() && address.match(base, bits);
}

function parseTable(rows: readonly (readonly [cidr: string, reason: string])[]): readonly (readonly [Cidr, string])[] {
  return rows.map(([cidr, reason]) => [parseCidr(cidr), reason]);
}

function parseCidr(text: string): Cidr {
  return ipaddr.parseCIDR(text);
}

function readAllowedCidr(text: string): Cidr {
  const wide = text.includes("/") ? text : `${text}/${isIP(text) === 6 ? 128 : 32}`;
  if (isIP(wide.slice(0, wide.indexOf("/"))) === 0 || !ipaddr.isValidCIDR(wide)) {
    throw new GatewayError("invalid_request", `'${text}' is not a CIDR; write for example 10.0.0.0/8 or fd00::/8.`, {
      param: "allowCidrs",
    });
  }
  return parseCidr(wide);
}

function readEndpoint(text: string): string {
  const at = text.lastIndexOf(":");
  const host = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
  if (at < 0 || isIP(host) === 0 || !/^\d{1,5}$/.test(text.slice(at + 1))) {
    throw new GatewayError("invalid_request", `'${text}' is not an address and port, for example 127.0.0.1:9001.`, {
      param: "deniedEndpoints",
    });
  }
  return `${ipaddr.process(host).toString()}:${text.slice(at + 1)}`;
}

/**
 * The kinds of clients that VCP knows, each at a WebSocket path of its own (facts of the wire; VCP-13). What is
 * connected to `/ws` may call itself the same, or any of the specification's other kinds.
 */
export interface ClientTypeSpec {
  readonly clientType: string;
  /** Says that it is connected, as the first thing. */
  readonly acknowledges: boolean;
}

/** By the first part of the path, which is compared letter by letter. */
export const vcpPaths = {
  VCPlog: { clientType: "VCPLog", acknowledges: true },
  vcpinfo: { clientType: "VCPInfo", acknowledges: true },
  "vcp-distributed-server": { clientType: "DistributedServer", acknowledges: true },
  "vcp-chrome-observer": { clientType: "ChromeObserver", acknowledges: false },
  "vcp-chrome-control": { clientType: "ChromeControl", acknowledges: false },
  "vcp-admin-panel": { clientType: "AdminPanel", acknowledges: false },
} as const satisfies Record<string, ClientTypeSpec>;

export type VcpPath = keyof typeof vcpPaths;

/** Hears of every tool call, and is told later what it has missed. */
export const vcpLogClient = "VCPLog";
/** Frames that are kept of a tenant for devices that are away. */
export const vcpLogKept = 100;

/** Those who may decide about calls that wait for a person. */
export const approvingClients: readonly string[] = ["VCPLog", "VCPInfo", "AdminPanel"];

export interface VcpAddress {
  readonly path: VcpPath;
  /** Where an old client puts it; undefined: it is in a header, or nowhere. */
  readonly key: string | undefined;
  /** By which a client is known again. */
  readonly deviceName: string | undefined;
}

/** `undefined`: no address of VCP's. @param target path and query of a request */
export function readVcpAddress(target: string): VcpAddress | undefined {
  const [path = "", query = ""] = target.split("?", 2);
  const [, prefix, key] = /^\/([A-Za-z-]+)(?:\/VCP_Key=([^/]*))?\/?$/.exec(path) ?? [];
  if (prefix === undefined || !isVcpPath(prefix)) return undefined;
  const parameters = new URLSearchParams(query);
  const names = ["deviceName", "device_name", "devicename"];
  const device = names.map((name) => parameters.get(name)?.trim()).find((given) => given !== undefined && given !== "");
  return { path: prefix, key: key === undefined ? undefined : decoded(key), deviceName: device?.slice(0, 128) };
}

function isVcpPath(text: string): text is VcpPath {
  return Object.hasOwn(vcpPaths, text);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

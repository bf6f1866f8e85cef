/**
 * Registries over HTTP for tests, with the answers of the real ones: what they refuse, and the shapes in which
 * they say what they know.
 */
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "../http-stub.ts";

export interface Known {
  readonly host: string;
  readonly port: number;
  readonly weight?: number;
  readonly healthy?: boolean;
}

export interface RegistryStub {
  readonly url: string;
  readonly http: HttpStub;
  /** What it says from now on. */
  known: readonly Known[];
  /** Answers with 500 from now on. */
  isDown: boolean;
  close(): Promise<void>;
}

type Answering = (request: Asked, known: readonly Known[]) => StubReply;

interface Asked extends RecordedRequest {
  readonly url: URL;
}

const json = (body: unknown, status = 200, headers: Record<string, string> = {}): StubReply => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(body),
});

async function startRegistry(answer: Answering): Promise<RegistryStub> {
  const http = await startHttpStub((request) =>
    stub.isDown
      ? { status: 500, body: "No cluster leader" }
      : answer({ ...request, url: new URL(request.target, "http://registry") }, stub.known),
  );
  const stub: RegistryStub = { url: http.url, http, known: [], isDown: false, close: () => http.close() };
  return stub;
}

/** A token that Consul knows, without the rights it takes. */
export const powerlessToken = "consul-token-of-nobody";

/**
 * Consul 1.14, of its community's edition: a token without rights gets an empty list with a header that says so, who has
 * none gets it without the header, and an unknown one is refused. What is wrong it says in plain text.
 */
export function startConsul({ token }: { readonly token?: string } = {}): Promise<RegistryStub> {
  return startRegistry(({ url, method, headers }, known) => {
    if (method !== "GET" || !url.pathname.startsWith("/v1/health/service/")) return { status: 404 };
    for (const [name, what] of [
      ["ns", "Namespaces"],
      ["partition", "Partitions"],
    ] as const) {
      const body = `Invalid query parameter: "${name}" - ${what} are a Consul Enterprise feature`;
      if (url.searchParams.has(name)) return { status: 400, body };
    }
    if ((url.searchParams.get("dc") ?? "dc1") !== "dc1") return { status: 500, body: "No path to datacenter" };
    const given = headers["x-consul-token"];
    if (given === powerlessToken) return json([], 200, { "x-consul-results-filtered-by-acls": "true" });
    if (given !== undefined && given !== token) return { status: 403, body: "ACL not found" };
    if (token !== undefined && given === undefined) return json([]);
    if (url.pathname !== "/v1/health/service/loyalty") return json([]);
    const isPassing = url.searchParams.get("passing") === "true";
    const entries = known
      .filter(({ healthy }) => !isPassing || healthy !== false)
      .map(({ host, port, weight = 1 }, index) => ({
        Node: { Node: `n${index}`, Address: host, Datacenter: "dc1" },
        // The first leaves its address to its node.
        Service: {
          ID: `l${index}`,
          Service: "loyalty",
          Tags: [],
          Address: index === 0 ? "" : host,
          Port: port,
          Weights: { Passing: weight, Warning: 1 },
        },
        Checks: [{ CheckID: "serfHealth", Status: "passing", ServiceID: "" }],
      }));
    return json(entries, 200, { "x-consul-index": "42" });
  });
}

export interface NacosOptions {
  readonly version: 1 | 2 | 3;
  readonly user?: { readonly username: string; readonly password: string };
}

export interface NacosStub extends RegistryStub {
  /** Gives no tokens yet. */
  isStarting: boolean;
  /** Takes no token that was given out before. */
  forgetTokens(): void;
}

/** Nacos: which API there is depends on the version; 3.2 has the newest only. */
export async function startNacos({ version, user }: NacosOptions): Promise<NacosStub> {
  let generation = 1;
  const loginPath = version === 3 ? "/nacos/v3/auth/user/login" : "/nacos/v1/auth/login";
  const listPath = {
    1: "/nacos/v1/ns/instance/list",
    2: "/nacos/v2/ns/instance/list",
    3: "/nacos/v3/client/ns/instance/list",
  }[version];
  const registry = await startRegistry(({ url, method, body }, known) => {
    if (method === "POST" && url.pathname === loginPath) {
      const form = new URLSearchParams(body.toString());
      if (stub.isStarting) return { status: 503, body: "server is STARTING now, please try again later!" };
      // That is how it says that it knows nobody of this name, and of everybody while it starts.
      if (form.get("username") !== user?.username) return { status: 500, body: `caused: ${form.get("username")};` };
      if (form.get("password") !== user?.password) return { status: 403, body: "unknown user!" };
      return json({
        accessToken: `token-${generation}`,
        tokenTtl: 18_000,
        globalAdmin: false,
        username: user?.username,
      });
    }
    if (method !== "GET" || url.pathname !== listPath)
      return json({ status: 404, error: "Not Found", message: "No message available", path: url.pathname }, 404);
    const accessToken = url.searchParams.get("accessToken");
    if (user !== undefined && accessToken !== `token-${generation}`) {
      const message = accessToken === null ? "user not found!" : "token invalid!";
      return json({ status: 403, error: "Forbidden", message, path: url.pathname }, 403);
    }
    if (url.searchParams.get("serviceName") !== "loyalty") {
      return version === 3
        ? json({ code: 21_008, message: "service not found" }, 404)
        : json({ code: 0, message: "success", data: { hosts: [] } });
    }
    const instances = known.map(({ host, port, weight = 1, healthy = true }) => ({
      instanceId: `${host}#${port}`,
      ip: host,
      port,
      weight,
      healthy,
      enabled: true,
      ephemeral: true,
      clusterName: "DEFAULT",
      serviceName: "DEFAULT_GROUP@@loyalty",
      metadata: {},
    }));
    const info = { name: "DEFAULT_GROUP@@loyalty", hosts: instances, reachProtectionThreshold: false, valid: true };
    if (version === 1) return json(info);
    return json({ code: 0, message: "success", data: version === 2 ? info : instances });
  });
  const stub: NacosStub = Object.assign(registry, {
    isStarting: false,
    forgetTokens: () => {
      generation += 1;
    },
  });
  return stub;
}

/** The API server of Kubernetes: two slices of one service, with one endpoint in both. */
export function startKubernetes({ token }: { readonly token: string }): Promise<RegistryStub> {
  return startRegistry(({ url, headers }, known) => {
    if (headers["authorization"] !== `Bearer ${token}`) {
      return json(
        { kind: "Status", status: "Failure", message: "Unauthorized", reason: "Unauthorized", code: 401 },
        401,
      );
    }
    if (url.pathname !== "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices") {
      return json(
        { kind: "Status", status: "Failure", message: "endpointslices is forbidden", reason: "Forbidden", code: 403 },
        403,
      );
    }
    const isAsked = url.searchParams.get("labelSelector") === "kubernetes.io/service-name=loyalty";
    const slices = (isAsked ? known : []).flatMap(({ host, port, healthy = true }, index) => {
      const slice = {
        metadata: { name: `loyalty-${index}`, labels: { "kubernetes.io/service-name": "loyalty" } },
        addressType: host.includes(":") ? "IPv6" : "IPv4",
        endpoints: [{ addresses: [host], conditions: { ready: healthy, serving: healthy, terminating: false } }],
        ports: [
          { name: "probe", port: 7, protocol: "UDP" },
          { name: "main", port, protocol: "TCP" },
          { name: "metrics", port: 9, protocol: "TCP" },
        ],
      };
      return index === 0 ? [slice, { ...slice, metadata: { name: "loyalty-again" } }] : [slice];
    });
    const empty = { metadata: { name: "loyalty-empty" }, addressType: "IPv4", endpoints: null, ports: null };
    return json({
      kind: "EndpointSliceList",
      apiVersion: "discovery.k8s.io/v1",
      metadata: {},
      items: [...slices, empty],
    });
  });
}

/** Microservices: grpc-js with reflection, health and TLS, HTTP behind each registry. */
import { noNacos, startNacosServer } from "../brokers/nacos.ts";
import { loyaltyDescriptors, startGrpcPeer, type GrpcPeerOptions } from "../grpc-peer.ts";
import type { Json } from "../gateway-client.ts";
import { startHttpStub } from "../http-stub.ts";
import { startConsul, startKubernetes, startNacos, type RegistryStub } from "../schemes/registries.ts";
import { localCertificate, localKey } from "../tls-pair.ts";
import type { ServicePeer } from "./peer.ts";

function grpc(name: string, options: GrpcPeerOptions, config: Json): ServicePeer {
  return {
    scheme: "svc",
    name,
    async start() {
      const peer = await startGrpcPeer(options);
      peer.answer = ({ path }) => {
        if (path.endsWith("/Watch")) return { messages: [{ kind: "came" }, { kind: "went" }] };
        return path.endsWith("/List") ? { message: { customers: [{ name: "Ada" }] } } : { message: { name: "Cy" } };
      };
      const asked = (method: string) => (): number => peer.asked.filter(({ path }) => path.endsWith(method)).length;
      return {
        config: { protocol: "grpc", endpoints: [{ host: "127.0.0.1", port: peer.port }], ...config },
        operations: [
          { tool: "loyalty.v1.Customers/List", arguments: { page: 1 }, gives: /Ada/, count: asked("/List") },
          { tool: "loyalty.v1.Customers/Create", arguments: { name: "Cy" }, gives: /Cy/, count: asked("/Create") },
          { tool: "loyalty.v1.Customers/Watch", arguments: { page: 1 }, gives: /came.*went/, count: asked("/Watch") },
        ],
        close: () => peer.close(),
      };
    },
  };
}

interface RunningRegistry {
  readonly discovery: Json;
  /** Makes an instance on loopback known as `loyalty`. */
  register(port: number): Promise<void> | void;
  close(): Promise<void>;
}
type StartRegistry = () => Promise<RunningRegistry>;

function stubbed(stub: RegistryStub, discovery: Json): RunningRegistry {
  return {
    discovery: { url: stub.url, service: "loyalty", ...discovery },
    register(port) {
      stub.known = [{ host: "127.0.0.1", port }];
    },
    close: () => stub.close(),
  };
}

function http(name: string, start: StartRegistry): ServicePeer {
  return {
    scheme: "svc",
    name,
    async start() {
      const stub = await startHttpStub(({ method }) => ({ body: JSON.stringify({ method }) }));
      const registry = await start();
      await registry.register(Number(new URL(stub.url).port));
      const asked = (method: string) => (): number => stub.requests.filter((asking) => asking.method === method).length;
      return {
        config: {
          protocol: "http",
          discovery: registry.discovery,
          auth_type: "jwt",
          auth_config: { key: "a-secret-that-signs-for-the-suite-of-peers", audience: "loyalty" },
          tools: {
            list: { description: "Lists customers.", endpoint: "/customers" },
            add: { description: "Adds a customer.", endpoint: "/customers", method: "POST" },
          },
        },
        operations: [
          { tool: "list", arguments: { page: 1 }, gives: /"GET"/, count: asked("GET") },
          { tool: "add", arguments: { name: "Ada" }, gives: /"POST"/, count: asked("POST") },
        ],
        async close() {
          await stub.close();
          await registry.close();
        },
      };
    },
  };
}

const nacos = (version: 1 | 2 | 3): ServicePeer =>
  http(`HTTP behind Nacos, API of version ${version}`, async () =>
    stubbed(await startNacos({ version }), { type: "nacos" }),
  );

const realNacos: ServicePeer = {
  ...http("HTTP behind Nacos 2.2.4 itself", async () => {
    const server = await startNacosServer();
    return {
      discovery: { type: "nacos", url: server.url, service: "loyalty" },
      register: (port) => server.register("loyalty", port),
      close: () => server.close(),
    };
  }),
  absent: noNacos,
};

export const svcPeers: readonly ServicePeer[] = [
  grpc("gRPC with descriptors", { health: "serving" }, { grpc: { descriptors: loyaltyDescriptors } }),
  grpc("gRPC with reflection", { reflection: "v1" }, {}),
  grpc("gRPC with the older reflection", { reflection: "v1alpha" }, {}),
  grpc(
    "gRPC over TLS",
    { reflection: "v1", tls: { cert: localCertificate, key: localKey } },
    { tls: { ca: localCertificate } },
  ),
  http("HTTP behind Consul", async () => {
    const token = "consul-token";
    return stubbed(await startConsul({ token }), { type: "consul", token });
  }),
  nacos(1),
  nacos(2),
  nacos(3),
  realNacos,
  http("HTTP behind Kubernetes", async () => {
    const token = "kubernetes-token";
    return stubbed(await startKubernetes({ token }), { type: "kubernetes", token, namespace: "shop", port: "main" });
  }),
];

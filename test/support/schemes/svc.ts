/** Microservices for the suite over all schemes: over HTTP with two instances at one process, and over gRPC. */
import { loyaltyDescriptors, startGrpcPeer } from "../grpc-peer.ts";
import { startHttpStub } from "../http-stub.ts";
import type { Mood, SchemeFixture } from "./fixture.ts";

const listing = {
  description: "Lists customers.",
  endpoint: "/customers",
  parameters: { type: "object", properties: { page: { type: "integer" } }, additionalProperties: false },
};

const overHttp: SchemeFixture = {
  tool: "customers_list",
  arguments: { page: 2 },
  badArguments: { page: "two" },
  effect: "read",
  async start() {
    let mood: Mood = "well";
    let calls = 0;
    const stub = await startHttpStub(({ target }, response) => {
      if (!target.startsWith("/v1/customers")) return { status: 404 };
      calls += 1;
      if (mood === "silent") return { delayMs: 60_000 };
      if (mood === "huge") return { body: JSON.stringify("x".repeat(10_000_000)) };
      if (mood === "well") return { body: '{"customers":[]}' };
      mood = "well";
      response.destroy();
      return undefined;
    });
    const port = Number(new URL(stub.url).port);
    const secret = "sentinel-of-the-microservice";
    const common = {
      protocol: "http",
      base_path: "/v1",
      auth_type: "jwt",
      auth_config: { key: secret, audience: "loyalty" },
      tools: { customers_list: listing },
    };
    return {
      config: {
        ...common,
        endpoints: [
          { host: "127.0.0.1", port },
          { host: "localhost", port },
        ],
      },
      deadConfig: { ...common, endpoints: [{ host: "127.0.0.1", port: 9 }] },
      secrets: [secret],
      calls: () => calls,
      behave: (next) => {
        mood = next;
      },
      close: () => stub.close(),
    };
  },
};

const overGrpc: SchemeFixture = {
  tool: "customers_list",
  arguments: { page: 2 },
  badArguments: { page: "two" },
  effect: "read",
  async start() {
    let mood: Mood = "well";
    const peer = await startGrpcPeer({ health: "serving" });
    peer.answer = () => {
      if (mood === "silent") return "silent";
      if (mood === "huge") return { message: { customers: [{ name: "x".repeat(10_000_000) }] } };
      if (mood === "well") return { message: { customers: [] } };
      mood = "well";
      return "cut";
    };
    const secret = "sentinel-of-the-grpc-service";
    const common = {
      protocol: "grpc",
      grpc: { descriptors: loyaltyDescriptors },
      tools: { customers_list: { method: "loyalty.v1.Customers/List" } },
      auth_type: "apikey",
      auth_config: { header: "x-loyalty-key", value: secret },
    };
    return {
      config: { ...common, endpoints: [{ host: "127.0.0.1", port: peer.port }] },
      deadConfig: { ...common, endpoints: [{ host: "127.0.0.1", port: 9 }] },
      secrets: [secret],
      calls: () => peer.asked.length,
      behave: (next) => {
        mood = next;
      },
      close: () => peer.close(),
    };
  },
};

export const svcFixtures: readonly SchemeFixture[] = [overHttp, overGrpc];

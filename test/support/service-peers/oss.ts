/** Object stores: one for each vendor's rules that checks signatures, and moto where the suite is told of one. */
import { randomUUID } from "node:crypto";
import { vendors, type Vendor } from "@toolyard/core/object-storage/vendors";
import type { Json } from "../gateway-client.ts";
import { startVendorStore } from "../vendor-stores.ts";
import type { PeerOperation, ServicePeer } from "./peer.ts";

const operations: readonly PeerOperation[] = [
  { tool: "save", arguments: { key: "files/说明.md", content: "# 你好" }, gives: /"key":"files\/说明\.md"/ },
  { tool: "load", arguments: { key: "files/说明.md" }, gives: /# 你好/ },
  { tool: "list", arguments: { prefix: "files/" }, gives: /说明\.md/ },
  { tool: "presign", arguments: { key: "files/说明.md" }, gives: /"url":"https?:/ },
];
/** Last of each way, so that the other one finds the object again after its own `save`. */
const remove: PeerOperation = { tool: "delete", arguments: { key: "files/说明.md" }, gives: /files/ };

function ofVendor(vendor: Vendor): ServicePeer {
  return {
    scheme: "oss",
    name: `a store with the rules of ${vendors[vendor].title}`,
    async start() {
      const bucket = vendor === "tencent_cos" ? "sample-1250000000" : "sample";
      const store = await startVendorStore(vendor, bucket);
      const config: Json = {
        vendor,
        bucket,
        region: store.region,
        endpoint: store.url,
        addressing: vendor === "minio" ? "path" : "custom_domain",
        access_key_id: store.credentials.accessKeyId,
        secret_access_key: store.credentials.secretAccessKey,
      };
      return { config, operations: [...operations, remove], close: () => store.close() };
    },
  };
}

const moto = URL.parse(process.env["TOOLYARD_MOTO_URL"] ?? "");

const motoPeer: ServicePeer = {
  scheme: "oss",
  name: "moto",
  absent: moto === null ? "moto is not running (PyPI: moto[server]; TOOLYARD_MOTO_URL says where)" : undefined,
  async start() {
    if (moto === null) throw new Error("There is no moto.");
    const bucket = `t-${randomUUID()}`;
    const made = await fetch(`${moto.origin}/${bucket}`, { method: "PUT" });
    if (!made.ok) throw new Error(`The bucket was not made: ${made.status}`);
    const config: Json = {
      vendor: "minio",
      bucket,
      region: "us-east-1",
      endpoint: moto.origin,
      access_key_id: "test",
      secret_access_key: "test",
    };
    return { config, operations: [...operations, remove], close: () => Promise.resolve() };
  },
};

export const ossPeers: readonly ServicePeer[] = [
  ...(Object.keys(vendors) as readonly Vendor[]).map(ofVendor),
  motoPeer,
];

/** A bucket of a store of one's own for the suite over all schemes. */
import { createHash } from "node:crypto";
import { startS3Server } from "../aws/s3-server.ts";
import type { SchemeFixture } from "./fixture.ts";

const bucket = "sample-bucket";
const key = "files/doc.txt";
/** The same for all, so that one can take another's place. */
const signer = { accessKeyId: "AKIASCHEMES", secretAccessKey: "sentinel-of-the-object-store" } as const;

export const ossFixture: SchemeFixture = {
  tool: "load",
  arguments: { key },
  badArguments: { key: 7 },
  effect: "read",
  async start() {
    const server = await startS3Server(bucket, { signer });
    const store = (text: string): void => {
      const body = Buffer.from(text);
      const etag = `"${createHash("md5").update(body).digest("hex")}"`;
      server.objects.set(key, { body, etag, modified: new Date(0), headers: { "content-type": "text/plain" } });
    };
    store("hello 你好");
    const { accessKeyId, secretAccessKey } = server.credentials;
    const config = {
      vendor: "minio",
      bucket,
      region: server.region,
      access_key_id: accessKeyId,
      secret_access_key: secretAccessKey,
    };
    return {
      config: { ...config, endpoint: server.url },
      deadConfig: { ...config, endpoint: "http://127.0.0.1:9" },
      secrets: [secretAccessKey],
      calls: () => server.requests.filter(({ path }) => path === `/${bucket}/${key}`).length,
      behave(mood) {
        server.latencyMs = mood === "silent" ? 60_000 : 0;
        store(mood === "huge" ? "x".repeat(10_000_000) : "hello 你好");
        if (mood === "broken") server.faults.push({ kind: "reset" });
      },
      close: () => server.close(),
    };
  },
};

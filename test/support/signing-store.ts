/**
 * An object store that is not ours and checks signatures: the one that TOOLYARD_S3_URL names, or S3Proxy, in memory.
 * Its jars are Maven's, and so it is there in `npm run test:services` alone.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fetchJars } from "./brokers/jars.ts";
import { freePort, stop, untilListening } from "./brokers/programs.ts";
import { servicesRun } from "./service-peers/peer.ts";

export interface SigningStore {
  /** With the key as user and password. */
  readonly url: string;
  close(): Promise<void>;
}

const key = { id: "toolyard", secret: "sentinel-of-s3proxy" } as const;

/** @returns why there is none, for people */
export async function startSigningStore(): Promise<SigningStore | string> {
  const named = process.env["TOOLYARD_S3_URL"];
  if (named !== undefined) return { url: named, close: () => Promise.resolve() };
  if (servicesRun === undefined) {
    return "TOOLYARD_S3_URL names none; npm run test:services fetches S3Proxy by Maven and starts it";
  }
  const jars = await fetchJars("s3proxy", join(import.meta.dirname, "brokers/s3proxy"));
  if (typeof jars === "string") return jars;
  const directory = await mkdtemp(join(tmpdir(), "toolyard-s3proxy-"));
  const port = await freePort();
  const properties = join(directory, "s3proxy.conf");
  await writeFile(
    properties,
    [
      `s3proxy.endpoint=http://127.0.0.1:${port}`,
      "s3proxy.authorization=aws-v2-or-v4",
      `s3proxy.identity=${key.id}`,
      `s3proxy.credential=${key.secret}`,
      "jclouds.provider=transient",
      "jclouds.identity=local",
      "jclouds.credential=local",
    ].join("\n"),
  );
  const words = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars.classPath];
  const child = spawn(jars.java, [...words, "org.gaul.s3proxy.Main", "--properties", properties], { stdio: "ignore" });
  await untilListening(port, child);
  return {
    url: `http://${key.id}:${key.secret}@127.0.0.1:${port}`,
    async close() {
      await stop(child);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Nacos 2.2.4 itself, the registry of it alone: no users, instances of this process's life. Its jars are Maven's (jars.ts). */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { servicesRun } from "../service-peers/peer.ts";
import { fetchJars } from "./jars.ts";
import { freePortWith, stop, untilListening } from "./programs.ts";

const directory = join(import.meta.dirname, "nacos");

/** Maven fetches them as this module is loaded, which is for `npm run test:services` to wait for. */
const jars =
  servicesRun === undefined ? "npm run test:services fetches it by Maven" : await fetchJars("nacos", directory);

/** Why there is none; undefined: there is one. */
export const noNacos = typeof jars === "string" ? jars : undefined;

/** Beside its own port: two for its gRPC, one for its Raft. */
const neighbours = [1_000, 1_001, -1_000] as const;

export interface NacosServer {
  readonly url: string;
  /** Makes an instance known, which stays well without a heartbeat. */
  register(service: string, port: number): Promise<void>;
  close(): Promise<void>;
}

export async function startNacosServer(): Promise<NacosServer> {
  if (typeof jars === "string") throw new Error(jars);
  const home = await mkdtemp(join(tmpdir(), "toolyard-nacos-"));
  const port = await freePortWith(neighbours);
  const url = `http://127.0.0.1:${port}`;
  const words = [
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Dnacos.standalone=true",
    `-Dnacos.home=${home}`,
    "-Dnacos.inetutils.ip-address=127.0.0.1",
    "-cp",
    jars.classPath,
    join(directory, "NacosServer.java"),
    `--server.port=${port}`,
    "--server.address=127.0.0.1",
    "--server.servlet.contextPath=/nacos",
  ];
  const child = spawn(jars.java, words, { stdio: "ignore", cwd: home });
  await untilListening(port, child);
  const hosts = async (service: string): Promise<string> =>
    (await fetch(`${url}/nacos/v2/ns/instance/list?serviceName=${service}`)).text();
  return {
    url,
    async register(serviceName, instancePort) {
      const metadata = { "preserved.heart.beat.timeout": "3600000", "preserved.ip.delete.timeout": "3600000" };
      const form = { serviceName, ip: "127.0.0.1", port: String(instancePort), metadata: JSON.stringify(metadata) };
      const answer = await fetch(`${url}/nacos/v2/ns/instance`, { method: "POST", body: new URLSearchParams(form) });
      if (!answer.ok) throw new Error(`Nacos did not take the instance: ${answer.status} ${await answer.text()}`);
      // What was taken is listed a moment later.
      while (!(await hosts(serviceName)).includes(`"port":${instancePort},`))
        await new Promise((done) => setTimeout(done, 50));
    },
    async close() {
      await stop(child);
      await rm(home, { recursive: true, force: true });
    },
  };
}

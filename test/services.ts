/**
 * `npm run test:services`: every scheme of tool services at real back ends, through invoke and through chat,
 * and with their faults. Says first which back ends there are; what is absent is skipped with the reason.
 * `-- --required` takes absence for failure, names what to install, and lets no such test be skipped.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMoto } from "./support/moto.ts";
import { runStage } from "./stages.ts";

/** Beginnings of paths. */
const suites = [
  "test/e2e/schemes.test.ts",
  "test/e2e/services-",
  "test/e2e/tool-services.test.ts",
  "test/e2e/api-services.test.ts",
  "test/e2e/mcp-",
  "test/e2e/microservices.test.ts",
  "test/e2e/object-storage.test.ts",
  "test/e2e/mq",
  "test/e2e/subscriptions-",
  "test/e2e/mail.test.ts",
  "test/e2e/sms",
  "test/contract/object-storage-peers.test.ts",
  "test/contract/breakers-repo.test.ts",
  "test/contract/tool-services-repo.test.ts",
] as const;

/** What installs all that is not on npm. */
const installs = [
  "apt-get install -y rabbitmq-server redis-server librdkafka-dev gcc default-jdk-headless maven",
  "pip install 'moto[server]'",
] as const;

/** The part of vitest's JSON report that is read here. */
interface Report {
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

const isRequired = process.argv.includes("--required");

async function run(): Promise<boolean> {
  process.env["TOOLYARD_SERVICES"] = isRequired ? "required" : "on";
  // Looks for its back ends as it is loaded.
  const { servicePeers } = await import("./support/service-peers/index.ts");
  console.log("Back ends of tool services:");
  for (const { scheme, name, absent } of servicePeers) {
    console.log(
      `  ${absent === undefined ? "there " : "absent"}  ${scheme}:// with ${name}${absent === undefined ? "" : `: ${absent}`}`,
    );
  }
  if (isRequired && servicePeers.some(({ absent }) => absent !== undefined)) {
    console.error(`\nAll of them are required. To install them:\n  ${installs.join("\n  ")}`);
    return false;
  }
  const reports = await mkdtemp(join(tmpdir(), "toolyard-services-"));
  try {
    const file = join(reports, "report.json");
    const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
    const result = await runStage(
      {
        name: "services",
        command: ["vitest", "run", "--project", "e2e", "--project", "contract", ...reporters, ...suites],
      },
      "show",
    );
    return result.ok && (!isRequired || nothingAbsent(JSON.parse(await readFile(file, "utf8")) as Report));
  } finally {
    await rm(reports, { recursive: true, force: true });
  }
}

/** Suites say in their names why they were skipped. */
function nothingAbsent({ testResults }: Report): boolean {
  const skipped = testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ status, fullName }) => status !== "passed" && status !== "failed" && fullName.includes("(skipped: "));
  for (const { fullName } of skipped) console.error(`Required, and skipped: ${fullName}`);
  return skipped.length === 0;
}

const moto = await startMoto();
if (typeof moto !== "string") process.env["TOOLYARD_MOTO_URL"] = moto.url;
try {
  process.exitCode = (await run()) ? 0 : 1;
} finally {
  if (typeof moto !== "string") await moto.close();
}

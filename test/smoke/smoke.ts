/**
 * `npm run smoke -- --url https://… --key …`: is this deployment well? For operators, against a real one. With
 * the operator's key everything happens in a tenant made for it and erased afterwards; with the key of
 * a tenant's admin, in that tenant, and the tool is removed. Exit code 0: all is well, 1: a check failed or
 * something was left behind, 2: it could not be asked.
 */
import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { checks, removeTool, scriptedModel, type Subject } from "./checks.ts";
import { DeploymentClient, listAt, textAt, UnreachableError } from "./client.ts";

const usage = `Usage: npm run smoke -- --url <base URL> [--key <key>] [--model <name>] [--tool-url <URL>]
  --url       where the deployment is, like https://tools.example.com
  --key       the operator's key, or one of a tenant's admin; default: TOOLYARD_ADMIN_KEY
  --model     asked in the chat; default: the first of the tenant, of a new one toolyard/scripted
  --tool-url  any GET with a 2xx answer that the deployment reaches; default: its own /health/live
`;

interface Options {
  readonly url: string;
  readonly key: string;
  readonly model: string | undefined;
  readonly toolUrl: string;
}

/** What was made for the checks, and how it goes. */
interface Arranged {
  readonly subject: Subject;
  remove(): Promise<string>;
}

const scopes = ["chat", "tools", "runtime_config", "calls", "approve", "manage"];

function readOptions(): Options | undefined {
  const text = { type: "string" } as const;
  try {
    const { values } = parseArgs({ options: { url: text, key: text, model: text, "tool-url": text } });
    const url = values.url?.replace(/\/+$/, "") ?? "";
    const key = values.key ?? process.env["TOOLYARD_ADMIN_KEY"] ?? "";
    if (!/^https?:\/\/./.test(url) || key === "") return undefined;
    return { url, key, model: values.model, toolUrl: values["tool-url"] ?? `${url}/health/live` };
  } catch {
    return undefined;
  }
}

async function arrange({ url, key, model, toolUrl }: Options): Promise<Arranged> {
  const nobody = new DeploymentClient(url);
  const given = nobody.withKey(key);
  const name = `smoke_${randomBytes(6).toString("hex")}`;
  const made = await given.send("POST", "/v1/tenants", { name });
  if (made.status !== 201) {
    // Not the operator's: whoever it is, the checks show what the key may do.
    const { json } = await given.expect("GET", "/v1/models");
    const first = textAt(listAt(json, "data")[0] ?? {}, "id");
    const subject = { nobody, tenant: given, model: model ?? first, name, toolUrl };
    return { subject, remove: () => removeTool(subject).then(() => "the tool is gone; its calls stay on record") };
  }
  const id = textAt(made.json, "id");
  const remove = async (): Promise<string> => {
    await given.expect("DELETE", `/v1/tenants/${id}`);
    return `tenant ${id} is erased`;
  };
  try {
    const inTenant = { "x-toolyard-tenant": id };
    const admin = await given.expect("POST", "/v1/api-keys", { name, role: "admin", scopes }, inTenant);
    const tenant = nobody.withKey(textAt(admin.json, "key"));
    if (model === undefined) {
      const provider = {
        name,
        kind: "scripted",
        base_url: `${url}/unused`,
        models: { [scriptedModel]: scriptedModel },
      };
      await tenant.expect("POST", "/v1/providers", provider);
    }
    return { subject: { nobody, tenant, model: model ?? scriptedModel, name, toolUrl }, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);

async function runChecks(subject: Subject): Promise<number> {
  let failed = 0;
  for (const { name, hint, run } of checks) {
    const started = performance.now();
    const time = (): string => `${(performance.now() - started).toFixed(0)} ms`.padStart(9);
    try {
      const found = await run(subject);
      print(`ok    ${name.padEnd(18)} ${time()}  ${found}`);
    } catch (error) {
      failed += 1;
      print(`FAIL  ${name.padEnd(18)} ${time()}  ${error instanceof Error ? error.message : String(error)}`);
      print(`      ${hint}`);
    }
  }
  return failed;
}

async function main(): Promise<number> {
  const options = readOptions();
  if (options === undefined) {
    process.stderr.write(usage);
    return 2;
  }
  let arranged: Arranged;
  try {
    arranged = await arrange(options);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    process.stderr.write(`${error instanceof UnreachableError ? "Cannot reach it: " : ""}${message}\n`);
    return 2;
  }
  const failed = await runChecks(arranged.subject);
  try {
    print(`clean ${"".padEnd(29)} ${await arranged.remove()}`);
  } catch (error) {
    print(`LEFT  something behind: ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  }
  print(
    failed === 0
      ? `\nsmoke: all ${checks.length} checks passed`
      : `\nsmoke: ${failed} of ${checks.length} checks failed`,
  );
  return failed === 0 ? 0 : 1;
}

process.exitCode = await main();

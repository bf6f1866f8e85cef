/**
 * Evaluates `sst.config.ts` for one stage as `sst deploy` does before it asks for credentials, with
 * Pulumi's mocks in place of AWS: `node test/infra/synthesize.ts <stage> <file>` writes what would be made.
 * The components are those of the installed SST; bundling, globals and answers of the command line are
 * rebuilt here. Runs as a process of its own, because Pulumi keeps its state in the module.
 */
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import type { SynthesizedResource, Synthesis } from "./synthesis.ts";

const root = join(import.meta.dirname, "../..");
const platform = join(root, ".sst/platform");
const account = "123456789012";
const region = "eu-central-1";

const [stage, target] = process.argv.slice(2);
if (stage === undefined || target === undefined) throw new Error("Usage: synthesize.ts <stage> <file>");

/** The parts of Pulumi's runtime that are used; it must be the very package that the components import. */
interface Runtime {
  setMocks(mocks: Mocks, project: string, stack: string, preview: boolean, organization: string): Promise<void>;
  getMonitor(): Monitor;
  runInPulumiStack(program: () => Promise<unknown>): Promise<unknown>;
  waitForRPCs(): Promise<void>;
}
interface Mocks {
  newResource(made: Made): { readonly id: string; readonly state: Values };
  call(asked: { readonly token: string; readonly inputs: Values }): Values;
}
interface Made {
  readonly type: string;
  readonly name: string;
  readonly inputs: Values;
}
type Values = Record<string, unknown>;

interface Registration {
  getType(): string;
  getName(): string;
  getProtect(): boolean | undefined;
  getRetainondelete(): boolean | undefined;
  getDependenciesList(): string[];
}
type Registered = (error: unknown, response: { getUrn(): string } | undefined) => void;
interface Monitor {
  registerResource(request: Registration, done: Registered): Promise<void>;
}

const load = createRequire(join(platform, "package.json"));
const pulumi = load("@pulumi/pulumi") as {
  readonly runtime: Runtime;
  output(value: unknown): { apply(use: (value: Values) => void): void };
};

/** Pulumi marks secrets by this key in what it hands over. */
const marker = "4dabf18193072939515e22adb298388d";

function unwrap(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(unwrap);
  if (typeof value !== "object" || value === null) return value;
  if (marker in value && "value" in value) return unwrap(value.value);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, unwrap(inner)]));
}

const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);

/** What AWS would add to the inputs of a resource, as far as other resources are made from it. */
const outputsOf: Readonly<Record<string, (name: string, arn: string) => Values>> = {
  "aws:apigateway/restApi:RestApi": (name) => ({ rootResourceId: `${name}-root`, executionArn: apiArn(name) }),
  "aws:apigatewayv2/api:Api": (name) => ({
    apiEndpoint: `wss://${name.toLowerCase()}.execute-api.${region}.amazonaws.com`,
    executionArn: apiArn(name),
  }),
  "aws:lambda/function:Function": (_, arn) => ({ qualifiedArn: `${arn}:1`, version: "1" }),
  "aws:s3/bucket:Bucket": (name) => ({ bucket: name.toLowerCase(), arn: `arn:aws:s3:::${name.toLowerCase()}` }),
  "aws:ec2/vpc:Vpc": (name) => ({ mainRouteTableId: `${name}-routes`, defaultNetworkAclId: `${name}-packets` }),
  "aws:ec2/vpcEndpoint:VpcEndpoint": (name) => ({ prefixListId: `${name}-prefixes` }),
  "aws:sqs/queue:Queue": (name) => ({ url: `https://sqs.${region}.amazonaws.com/${account}/${name}` }),
  "aws:ecr/repository:Repository": (name) => ({
    repositoryUrl: `${account}.dkr.ecr.${region}.amazonaws.com/${name}`,
    registryId: account,
  }),
  "aws:acm/certificate:Certificate": () => ({ domainValidationOptions: [] }),
  "docker-build:index:Image": () => ({ digest: `sha256:${"0".repeat(64)}`, ref: "image" }),
  "random:index/randomBytes:RandomBytes": () => ({ base64: Buffer.alloc(32).toString("base64") }),
};

function apiArn(name: string): string {
  return `arn:aws:execute-api:${region}:${account}:${name}`;
}

const resources: SynthesizedResource[] = [];

const mocks: Mocks = {
  newResource({ type, name, inputs }) {
    const given = unwrap(inputs) as Values;
    const physical = text(given["name"], name);
    const arn = `arn:aws:${type.split(":")[1]?.split("/")[0] ?? "x"}:${region}:${account}:${physical}`;
    return { id: `${physical}-id`, state: { ...given, name: physical, arn, ...outputsOf[type]?.(physical, arn) } };
  },
  call({ token, inputs }) {
    const given = unwrap(inputs) as Values;
    if (token.endsWith("getRegion")) return { region, id: region, name: region };
    if (token.endsWith("getPartition")) return { partition: "aws" };
    if (token.endsWith("getCallerIdentity")) return { accountId: account };
    if (token.endsWith("getPolicyDocument")) {
      return { ...given, json: JSON.stringify({ Statement: given["statements"] }) };
    }
    if (token.endsWith("getAuthorizationToken"))
      return { proxyEndpoint: "https://ecr", userName: "AWS", password: "-" };
    if (token.endsWith("getZone")) return { ...given, zoneId: "Z1" };
    throw new Error(`no mock answers ${token}`);
  },
};

/** Beside inputs, what is registered with them: protection, retention, what must be made before. */
async function watchRegistrations(): Promise<void> {
  await pulumi.runtime.setMocks(
    {
      ...mocks,
      newResource(made) {
        inputs.set(`${made.type} ${made.name}`, unwrap(made.inputs) as Values);
        return mocks.newResource(made);
      },
    },
    "toolyard",
    text(stage, ""),
    false,
    "organization",
  );
  const inputs = new Map<string, Values>();
  const monitor = pulumi.runtime.getMonitor();
  const register = monitor.registerResource.bind(monitor);
  monitor.registerResource = (request, done) =>
    register(request, (error, response) => {
      const type = request.getType();
      const name = request.getName();
      resources.push({
        urn: response?.getUrn() ?? "",
        type,
        name,
        inputs: inputs.get(`${type} ${name}`) ?? {},
        protect: request.getProtect() ?? false,
        retainOnDelete: request.getRetainondelete() ?? false,
        after: request.getDependenciesList(),
      });
      done(error, response);
    });
}

/** What SST's command line answers to the components: where things are, and how a function was built. */
function answer(method: string, asked: Values): unknown {
  if (method === "Provider.Aws.Bootstrap") {
    return { asset: "assets", assetEcrRegistryId: account, assetEcrUrl: "ecr", state: "state" };
  }
  if (method === "Runtime.Build") {
    const bundle = text(asked["bundle"], "");
    const handler = text(asked["handler"], "");
    const file = join(bundle, `${handler.slice(0, handler.lastIndexOf("."))}.mjs`);
    const errors = bundle !== "" && existsSync(file) ? [] : [`there is no ${file}`];
    return { handler, out: bundle, errors, sourcemaps: [] };
  }
  throw new Error(`rpc: can't find method ${method}`);
}

async function serveCommandLine(): Promise<{ readonly url: string; close(): void }> {
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part: string) => (body += part));
    request.on("end", () => {
      const { method, params } = JSON.parse(body) as { readonly method: string; readonly params: readonly Values[] };
      try {
        response.end(JSON.stringify({ result: answer(method, params[0] ?? {}) }));
      } catch (thrown) {
        response.end(JSON.stringify({ error: thrown instanceof Error ? thrown.message : String(thrown) }));
      }
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

/** Providers and components are globals in a configuration; SST imports them into every file of ours. */
function globalsInOurFiles(): Plugin {
  const lines = [
    `import * as aws from "@pulumi/aws";`,
    `import * as dockerbuild from "@pulumi/docker-build";`,
    `import * as sst from "${platform}/src/components/index.ts";`,
  ];
  return {
    name: "globals",
    setup(builder) {
      builder.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const isOurs = path === join(root, "sst.config.ts") || path.startsWith(join(root, "infra/"));
        if (!isOurs) return undefined;
        return { contents: `${lines.join("\n")}\n${await readFile(path, "utf8")}`, loader: "ts" };
      });
    },
  };
}

interface Program {
  app(input: { readonly stage: string }): Values | Promise<Values>;
  start(): Promise<Values>;
}

async function bundleConfiguration(): Promise<Program> {
  const file = join(platform, `synthesis-${process.pid}.mjs`);
  const banner = `import { createRequire as _c } from "node:module"; const require = _c(import.meta.url); const __dirname = import.meta.dirname; const __filename = import.meta.filename;`;
  try {
    await build({
      stdin: {
        contents: `import { run } from "${platform}/src/auto/run.ts"; import config from "${root}/sst.config.ts"; export const app = config.app; export const start = () => run(config.run);`,
        resolveDir: root,
        loader: "ts",
      },
      outfile: file,
      bundle: true,
      platform: "node",
      format: "esm",
      mainFields: ["module", "main"],
      nodePaths: [join(platform, "node_modules")],
      // One instance of each for the program and for us; the rest is large and found beside the file.
      external: [
        "@pulumi/*",
        "@pulumiverse/*",
        "@sst-provider/*",
        "@aws-sdk/*",
        "undici",
        "esbuild",
        "archiver",
        "glob",
        "vite",
      ],
      inject: [join(platform, "src/shim/run.js")],
      banner: { js: banner },
      plugins: [globalsInOurFiles()],
      logLevel: "error",
    });
    return (await import(pathToFileURL(file).href)) as Program;
  } finally {
    await rm(file, { force: true });
  }
}

async function synthesize(): Promise<Synthesis> {
  const commandLine = await serveCommandLine();
  process.env["SST_SERVER"] = commandLine.url;
  const app: Values = { name: "toolyard", stage, providers: {} };
  const paths = { home: "/tmp", root, work: join(root, ".sst"), platform };
  Object.assign(globalThis, {
    $app: app,
    $cli: { command: "deploy", paths, state: { version: {} } },
    $dev: false,
  });
  await watchRegistrations();
  const program = await bundleConfiguration();
  Object.assign(app, await program.app({ stage: text(stage, "") }));
  let outputs: Values = {};
  await pulumi.runtime.runInPulumiStack(async () => {
    outputs = await program.start();
  });
  await pulumi.runtime.waitForRPCs();
  const known = await new Promise<Values>((resolve) => pulumi.output(outputs).apply(resolve));
  await pulumi.runtime.waitForRPCs();
  commandLine.close();
  return { app, outputs: unwrap(known) as Values, resources };
}

await writeFile(target, JSON.stringify(await synthesize()));
process.exit(0);

/**
 * One module of a plugin (VCP specification s. 4.3, 4.4): loaded, initialised, asked. In the process, or the thread,
 * that is its alone.
 */
import { existsSync, realpathSync } from "node:fs";
import Module, { createRequire } from "node:module";
import { isAbsolute, join, relative, sep } from "node:path";
import { pathToFileURL } from "node:url";
import { express, Router, type Application } from "./express.ts";
import { json, text, urlencoded } from "./express-middleware.ts";
import { messageOf, ModuleError } from "./faults.ts";
import { createGiven, type Given } from "./given.ts";
import { exchange } from "./http-exchange.ts";
import { parseText, toText } from "./plain.ts";
import type { JsonObject, JsonValue } from "@toolyard/core/json";
import type { HttpAnswered, HttpAsked, ModuleSpec, Told, ToolContext } from "@toolyard/core/vcp/modules/wire";

export interface ModuleOptions {
  readonly spec: ModuleSpec;
  /** The plugin's folder. */
  readonly directory: string;
  /** Above it: what plugins know as the project. */
  readonly projectDirectory: string;
  /** Bytes of any result. */
  readonly maxBytes: number;
  readonly tell: (told: Told) => void;
}

type Hook = (...args: unknown[]) => unknown;

export class PluginModule {
  readonly #options: ModuleOptions;
  readonly #exports: object;
  readonly #given: Given;
  readonly #app: Application;

  /** @throws ModuleError */
  static async open(options: ModuleOptions): Promise<PluginModule> {
    provideExpress();
    const module = new PluginModule(options, await load(options));
    await module.#initialize();
    return module;
  }

  private constructor(options: ModuleOptions, exports: object) {
    this.#options = options;
    this.#exports = exports;
    this.#given = createGiven(options.spec, options.tell);
    // As the original's server does before any plugin's routes.
    this.#app = express();
    this.#app.use(json(), urlencoded(), text());
  }

  /** @throws ModuleError */
  async processMessages(messages: readonly JsonValue[], extensions: JsonValue | undefined): Promise<JsonValue[]> {
    const hook = this.#need("processMessages");
    const extra = extensions === undefined ? {} : { vcpchatExtensions: extensions };
    const given = await hook(structuredClone(messages), { ...this.#config(), ...extra });
    if (!Array.isArray(given)) {
      const what = given === null ? "null" : typeof given;
      throw new ModuleError("result", `its processMessages gave ${what}, not an array of messages`);
    }
    const plain = this.#plain(given);
    if (!Array.isArray(plain) || !plain.every(isMessage))
      throw new ModuleError("result", "its processMessages gave something that is no message: each needs a 'role'");
    if (plain.length === 0 && messages.length > 0)
      throw new ModuleError("result", "its processMessages gave no messages, and a model has to be asked something");
    return plain;
  }

  /** @throws ModuleError */
  async processToolCall(args: JsonObject, context: ToolContext, signal: AbortSignal): Promise<JsonValue> {
    const hook = this.#need("processToolCall");
    const given = await hook(structuredClone(args), { ...context, pluginName: this.#options.spec.name, signal });
    return given === undefined ? null : this.#plain(given);
  }

  /** @throws ModuleError */
  async answerHttp(request: HttpAsked, signal: AbortSignal): Promise<HttpAnswered> {
    const { maxBytes, spec } = this.#options;
    const answered = await exchange(this.#app, request, {
      base: `/api/plugins/${spec.name}`,
      maxBytes,
      signal,
    });
    return answered;
  }

  async close(): Promise<void> {
    await this.#hook("shutdown")?.();
  }

  #config(): Record<string, unknown> {
    return { ...this.#options.spec.config, PROJECT_BASE_PATH: this.#options.projectDirectory };
  }

  async #initialize(): Promise<void> {
    const { spec, projectDirectory } = this.#options;
    try {
      await this.#hook("initialize")?.(this.#config(), { ...this.#given });
      const router = Router();
      if (spec.hasApiRoutes)
        await this.#hook("registerApiRoutes")?.(router, this.#config(), projectDirectory, undefined);
      this.#app.use(`/api/plugins/${spec.name}`, router);
      await this.#registerRoutes();
      const { vcpLogFunctions } = this.#given;
      await this.#hook("setDependencies")?.({
        vcpLogFunctions,
        knowledgeBaseManager: undefined,
        tdbKnowledgeManager: undefined,
      });
    } catch (thrown) {
      throw new ModuleError("initialize", `its initialisation failed: ${messageOf(thrown)}`);
    }
  }

  /** Its routes have the addresses that it gives them, below that of the plugin. */
  async #registerRoutes(): Promise<void> {
    const { spec, projectDirectory } = this.#options;
    const hook = this.#hook("registerRoutes");
    if (hook === undefined) return;
    const [app, admin] = [express(), Router()];
    const rest = [this.#config(), projectDirectory];
    // As the original does: those with fewer parameters know no administration.
    await (hook.length < 4 ? hook(app, ...rest) : hook(app, admin, ...rest));
    this.#app.use(`/api/plugins/${spec.name}/admin_api`, admin);
    this.#app.use(`/api/plugins/${spec.name}`, app);
  }

  #hook(name: string): Hook | undefined {
    const found: unknown = Reflect.get(this.#exports, name);
    if (typeof found !== "function") return undefined;
    const bound = (...args: unknown[]): unknown => Reflect.apply(found, this.#exports, args);
    return Object.defineProperty(bound, "length", { value: found.length });
  }

  #need(name: string): Hook {
    const hook = this.#hook(name);
    if (hook === undefined) throw new ModuleError("absent", `its module exports no function '${name}'`);
    return hook;
  }

  #plain(value: unknown): JsonValue {
    const text = toText(value);
    const { maxBytes } = this.#options;
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) throw new ModuleError("size", `it gave ${bytes} bytes; ${maxBytes} are allowed`);
    return parseText(text);
  }
}

function isMessage(value: JsonValue): boolean {
  return typeof value === "object" && value !== null && "role" in value && typeof value["role"] === "string";
}

/** @throws ModuleError */
async function load({ spec, directory }: ModuleOptions): Promise<object> {
  const file = fileOf(spec.script, directory);
  let loaded: unknown;
  try {
    loaded = createRequire(file)(file);
  } catch (thrown) {
    if (codeOf(thrown) !== "ERR_REQUIRE_ESM" && codeOf(thrown) !== "ERR_REQUIRE_ASYNC_MODULE") throw notLoaded(thrown);
    loaded = await import(pathToFileURL(file).href).catch((inner: unknown) => {
      throw notLoaded(inner);
    });
  }
  const found = withoutDefault(loaded);
  if ((typeof found !== "object" && typeof found !== "function") || found === null)
    throw new ModuleError("load", `its module '${spec.script}' exports nothing`);
  return found;
}

/** What is written as a module of the newer kind has it in `default`. */
function withoutDefault(loaded: unknown): unknown {
  if (typeof loaded !== "object" || loaded === null || !("default" in loaded)) return loaded;
  const hooks = ["initialize", "processMessages", "processToolCall", "registerRoutes", "registerApiRoutes"];
  return hooks.some((name) => name in loaded) ? loaded : loaded.default;
}

function fileOf(script: string, directory: string): string {
  const wanted = join(directory, script.replaceAll("\\", "/"));
  const file = [wanted, `${wanted}.js`, `${wanted}.cjs`].find((path) => existsSync(path));
  if (file === undefined)
    throw new ModuleError("load", `'entryPoint.script' names '${script}', which is not among its files`);
  const [real, home] = [realpathSync(file), realpathSync(directory)];
  const below = relative(home, real);
  if (isAbsolute(below) || below === ".." || below.startsWith(`..${sep}`))
    throw new ModuleError("load", `'entryPoint.script' names '${script}', which is outside of the plugin's folder`);
  return real;
}

function notLoaded(thrown: unknown): ModuleError {
  const name =
    codeOf(thrown) === "MODULE_NOT_FOUND" ? /^Cannot find module '([^']+)'/.exec(messageOf(thrown))?.[1] : undefined;
  if (name === undefined) return new ModuleError("load", `its module cannot be loaded: ${messageOf(thrown)}`);
  const what = name.startsWith(".") || isAbsolute(name) ? `the file '${name}'` : `the package '${name}'`;
  return new ModuleError(
    "load",
    `its module needs ${what}, which is not there; put it into the plugin's folder (node_modules)`,
  );
}

function codeOf(thrown: unknown): unknown {
  return typeof thrown === "object" && thrown !== null && "code" in thrown ? thrown.code : undefined;
}

/** For modules that bring no `express` of their own. */
function provideExpress(): void {
  const load: unknown = Reflect.get(Module, "_load");
  if (typeof load !== "function") return;
  const provided = (name: unknown, ...rest: unknown[]): unknown => {
    if (name !== "express") return Reflect.apply(load, Module, [name, ...rest]);
    try {
      return Reflect.apply(load, Module, [name, ...rest]);
    } catch (thrown) {
      if (codeOf(thrown) !== "MODULE_NOT_FOUND" || !messageOf(thrown).includes("'express'")) throw thrown;
      return express;
    }
  };
  Reflect.set(Module, "_load", provided);
}

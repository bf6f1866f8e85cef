/**
 * Names to addresses, shared fairly. The system looks names up in threads, half of libuv's at a time for the whole
 * process (UV_THREADPOOL_SIZE), and holds one for as long as a name's servers are silent. So whoever asks for a name that is
 * being looked up waits for the same answer, and names of one site have two lookups at a time.
 */

export interface ResolvedAddress {
  readonly address: string;
  readonly family: number;
}

export type LookUp = (host: string) => Promise<readonly ResolvedAddress[]>;

const lookupsOfSite = 2;
/** Names of one site that may wait for their turn; who asked for them may have left long ago. */
const mostWaiting = 500;

interface Site {
  running: number;
  readonly waiting: (() => void)[];
}

export class NameResolver {
  readonly #lookUp: LookUp;
  readonly #underWay = new Map<string, Promise<readonly ResolvedAddress[]>>();
  readonly #sites = new Map<string, Site>();

  constructor(lookUp: LookUp) {
    this.#lookUp = lookUp;
  }

  /** @throws Error as `lookUp`, and where too many names of the site wait */
  resolve(host: string): Promise<readonly ResolvedAddress[]> {
    const known = this.#underWay.get(host);
    if (known !== undefined) return known;
    const asked = this.#inTurn(host).finally(() => this.#underWay.delete(host));
    this.#underWay.set(host, asked);
    return asked;
  }

  async #inTurn(host: string): Promise<readonly ResolvedAddress[]> {
    const name = siteOf(host);
    const site = this.#sites.get(name) ?? { running: 0, waiting: [] };
    this.#sites.set(name, site);
    if (site.running < lookupsOfSite) site.running += 1;
    else if (site.waiting.length >= mostWaiting) throw tooMany(name);
    // Whoever leaves hands its place on.
    else await new Promise<void>((turn) => site.waiting.push(turn));
    try {
      return await this.#lookUp(host);
    } finally {
      const next = site.waiting.shift();
      if (next !== undefined) next();
      else if (site.running > 1) site.running -= 1;
      else this.#sites.delete(name);
    }
  }
}

function tooMany(site: string): Error {
  // As where no server has answered, which is why they wait.
  return Object.assign(new Error(`${mostWaiting} other names of '${site}' wait to be looked up`), {
    code: "EAI_AGAIN",
  });
}

/** What stands under countries for everybody: `co.uk`, `com.cn`, `ne.jp`. */
const sharedLabels = new Set(
  "ac asn biz co com ed edu gen go gob gouv gov govt gr gv id ind info ltd me mil ne net nhs nom or org plc police sch web".split(
    " ",
  ),
);

/** The part of a name that one owner has servers for, as far as its form tells: `b.example` of `a.b.example`, `b.co.uk` of `a.b.co.uk`. */
function siteOf(host: string): string {
  const labels = host.split(".");
  const isShared = labels.at(-1)?.length === 2 && sharedLabels.has(labels.at(-2) ?? "");
  return labels.slice(isShared ? -3 : -2).join(".");
}

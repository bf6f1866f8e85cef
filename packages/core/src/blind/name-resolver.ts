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

/** The part of a name that one owner has servers for, as far as its form tells: `b.example` of `a.b.example`, `b.co.uk` of `a.b.co.uk`. */
function siteOf(host: string): string {
  const labels = host.split(".");
  const isUnderCountry = labels.at(-1)?.length === 2 && (labels.at(-2)?.length ?? 0) <= 3;
  return labels.slice(isUnderCountry ? -3 : -2).join(".");
}

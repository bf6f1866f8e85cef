/**
 * What system calls code in a box may not make, as the filter that `bwrap --seccomp` and `prctl` take: a program for the
 * kernel's classic packet filter. It closes what namespaces leave open: memory that no limit counts, sockets of the machine
 * that no network namespace holds (such as AF_VSOCK), namespaces inside the box, and rarely used doors of the kernel.
 */

interface Machine {
  /** Of the audit interface. */
  readonly arch: number;
  readonly clone: number;
  readonly socket: number;
  readonly refused: readonly number[];
  /** Said to be unknown, so that libraries take another way. */
  readonly unknown: readonly number[];
  /** Numbers from here on are of another interface (x32). */
  readonly beyond?: number;
}

/** io_uring, the new mount calls, mount_setattr, memfd_secret: of one number everywhere. */
const common = [425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 447];
const clone3 = 435;

const machines: Readonly<Record<string, Machine>> = {
  x64: {
    arch: 0xc000003e,
    clone: 56,
    socket: 41,
    // System V memory, semaphores and queues; ptrace and others' memory; roots, mounts and namespaces; modules, keys,
    // quotas, swap, kexec, reboot, accounting; file handles; BPF, perf, fanotify, userfaultfd.
    refused: [
      29,
      30,
      31,
      64,
      65,
      68,
      69,
      70,
      220,
      101,
      310,
      311,
      155,
      161,
      165,
      166,
      272,
      308,
      175,
      176,
      313,
      248,
      249,
      250,
      179,
      167,
      246,
      320,
      169,
      163,
      303,
      304,
      321,
      298,
      300,
      323,
      ...common,
    ],
    unknown: [319, clone3],
    beyond: 0x40000000,
  },
  arm64: {
    arch: 0xc00000b7,
    clone: 220,
    socket: 198,
    refused: [
      194,
      196,
      195,
      190,
      193,
      186,
      189,
      188,
      192,
      117,
      270,
      271,
      41,
      51,
      40,
      39,
      97,
      268,
      105,
      106,
      273,
      217,
      218,
      219,
      60,
      224,
      104,
      294,
      142,
      89,
      264,
      265,
      280,
      241,
      262,
      282,
      ...common,
    ],
    unknown: [279, clone3],
  },
};

const load = 0x20;
const jumpIfEqual = 0x15;
const jumpIfAtLeast = 0x35;
const jumpIfAny = 0x45;
const give = 0x06;

const allow = 0x7fff0000;
const kill = 0x80000000;
const failWith = (errno: number): number => 0x00050000 | errno;
const notPermitted = failWith(1);
const notImplemented = failWith(38);
const noSuchFamily = failWith(97);

const callAt = 0;
const archAt = 4;
const firstArgumentAt = 16;
/** Of `clone`: every kind of namespace. */
const newNamespaces = 0x7e020080;
/** AF_UNIX, AF_INET, AF_INET6: all that a program without a network has a use for. */
const families = [1, 2, 10];
/** Where nothing else keeps it from the network: AF_UNIX. */
const familiesOfThisMachine = [1];

export interface CallFilterOptions {
  /** Default: that of this process. */
  readonly machine?: string;
  /** No namespace closes the network, so no socket of it may be made. */
  readonly refusesNetwork?: boolean;
}

type Step = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** @returns undefined for a machine that the numbers are not known of */
export function callFilter({ machine = process.arch, refusesNetwork = false }: CallFilterOptions = {}):
  | Uint8Array
  | undefined {
  const known = Object.hasOwn(machines, machine) ? machines[machine] : undefined;
  if (known === undefined) return undefined;
  const { arch, clone, socket, refused, unknown, beyond } = known;
  const when = (call: number, answer: number): Step[] => [
    [jumpIfEqual, 0, 1, call],
    [give, 0, 0, answer],
  ];
  const steps: Step[] = [
    [load, 0, 0, archAt],
    [jumpIfEqual, 1, 0, arch],
    [give, 0, 0, kill],
    [load, 0, 0, callAt],
    ...(beyond === undefined
      ? []
      : ([
          [jumpIfAtLeast, 0, 1, beyond],
          [give, 0, 0, notPermitted],
        ] as const)),
    ...refused.flatMap((call) => when(call, notPermitted)),
    ...unknown.flatMap((call) => when(call, notImplemented)),
    [jumpIfEqual, 0, 4, clone],
    [load, 0, 0, firstArgumentAt],
    [jumpIfAny, 0, 1, newNamespaces],
    [give, 0, 0, notPermitted],
    [give, 0, 0, allow],
    [jumpIfEqual, 1, 0, socket],
    [give, 0, 0, allow],
    [load, 0, 0, firstArgumentAt],
    ...(refusesNetwork ? familiesOfThisMachine : families).flatMap((family) => when(family, allow)),
    [give, 0, 0, noSuchFamily],
  ];
  const bytes = Buffer.alloc(steps.length * 8);
  steps.forEach(([code, ifTrue, ifFalse, value], at) => {
    bytes.writeUInt16LE(code, at * 8);
    bytes.writeUInt8(ifTrue, at * 8 + 2);
    bytes.writeUInt8(ifFalse, at * 8 + 3);
    bytes.writeUInt32LE(value >>> 0, at * 8 + 4);
  });
  return bytes;
}

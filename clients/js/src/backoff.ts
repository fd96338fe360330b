/** Backoff bounds the pauses between connections, in milliseconds. */
export interface Backoff {
  first: number;
  most: number;
}

/**
 * pauseBefore is the pause before try number `attempt` (0 is the first repeat): a random part of a bound that doubles.
 * The whole range is drawn from ("full jitter"), so that a crowd that lost its gateway comes back spread out.
 */
export function pauseBefore(attempt: number, b: Backoff, random: () => number): number {
  const bound = Math.min(b.most, b.first * 2 ** Math.min(attempt, 20));
  return Math.floor(random() * bound);
}

/** So far outside of what is seen an element is in sight already: it is about to be scrolled there. */
const MARGIN = '60px';

/** Which elements are in sight: not scrolled away, and in nothing that is hidden. */
export class Sight {
  private readonly seen = new Set<Element>();
  private readonly observer: IntersectionObserver;

  /** `came` is called when any element has come into sight. */
  constructor(came: () => void) {
    this.observer = new IntersectionObserver(
      entries => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) {
            this.seen.add(target);
          } else {
            this.seen.delete(target);
          }
        }
        if (entries.some(({ isIntersecting }) => isIntersecting)) {
          came();
        }
      },
      { rootMargin: MARGIN }
    );
  }

  /** Whether `element` is in sight; false until it was watched for a moment. */
  has(element: Element): boolean {
    return this.seen.has(element);
  }

  /** Tell of `element` from now on. */
  watch(element: Element): void {
    this.observer.observe(element);
  }

  /** Tell of it no more. */
  forget(element: Element): void {
    this.observer.unobserve(element);
    this.seen.delete(element);
  }

  /** Tell of nothing any more. */
  dispose(): void {
    this.observer.disconnect();
    this.seen.clear();
  }
}

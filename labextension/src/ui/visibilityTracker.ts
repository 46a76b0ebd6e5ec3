/**
 * Elements this close to the visible area count as visible, because they are about to be scrolled into it.
 */
const MARGIN = '60px';

/** Tracks which elements are visible: those inside the scrolled area and not within a hidden element. */
export class VisibilityTracker {
  private readonly visible = new Set<Element>();
  private readonly observer: IntersectionObserver;

  /** `onVisible` is called after some elements have become visible. */
  constructor(onVisible: () => void) {
    this.observer = new IntersectionObserver(
      entries => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) {
            this.visible.add(target);
          } else {
            this.visible.delete(target);
          }
        }
        if (entries.some(({ isIntersecting }) => isIntersecting)) {
          onVisible();
        }
      },
      { rootMargin: MARGIN }
    );
  }

  /**
   * Return whether `element` is visible. It is false until the browser has reported the element for the first
   * time.
   */
  has(element: Element): boolean {
    return this.visible.has(element);
  }

  /** Start tracking `element`. */
  observe(element: Element): void {
    this.observer.observe(element);
  }

  /** Stop tracking `element`. */
  unobserve(element: Element): void {
    this.observer.unobserve(element);
    this.visible.delete(element);
  }

  /** Stop tracking all elements. */
  dispose(): void {
    this.observer.disconnect();
    this.visible.clear();
  }
}
